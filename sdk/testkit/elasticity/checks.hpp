// Checks of kind pliant.elasticity_policy/0, by subject.
#pragma once

#include <vector>

#include "testkit/check.hpp"

namespace pliant::testkit {

std::vector<Check> plan_checks();     // each plan against the rules
std::vector<Check> request_checks();  // what a plan may depend on, and what is refused

}  // namespace pliant::testkit
