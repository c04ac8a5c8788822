// Checks that fit every kind.
#pragma once

#include <vector>

#include "testkit/check.hpp"

namespace pliant::testkit {

std::vector<Check> plugin_checks();

void sound_options(const Subject& subject);
void option_limits(const Subject& subject);
void state_returns(const Subject& subject);
void damaged_state(const Subject& subject);

}  // namespace pliant::testkit
