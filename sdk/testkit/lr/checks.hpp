// Checks of kind pliant.lr_rule/0.
#pragma once

#include <vector>

#include "testkit/check.hpp"

namespace pliant::testkit {

std::vector<Check> rate_checks();   // each answer against the rules
std::vector<Check> state_checks();  // what an answer may depend on

}  // namespace pliant::testkit
