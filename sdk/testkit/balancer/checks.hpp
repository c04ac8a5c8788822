// Checks of kind pliant.balancer/0.
#pragma once

#include <vector>

#include "testkit/check.hpp"

namespace pliant::testkit {

std::vector<Check> balance_checks();

}  // namespace pliant::testkit
