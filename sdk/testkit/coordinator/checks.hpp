// Checks of kind pliant.coordinator/0, by subject.
#pragma once

#include <vector>

#include "testkit/check.hpp"

namespace pliant::testkit {

std::vector<Check> action_checks();   // each list against the rules
std::vector<Check> model_checks();    // models that come again, change, have a budget; passes that are given up
std::vector<Check> refusal_checks();  // calls that are wrong

}  // namespace pliant::testkit
