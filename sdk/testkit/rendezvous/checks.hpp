// Checks of kind pliant.rendezvous/0.
#pragma once

#include <vector>

#include "testkit/check.hpp"

namespace pliant::testkit {

std::vector<Check> join_checks();   // the answers to one node, and to two
std::vector<Check> leave_checks();  // waiting, and the end of it

}  // namespace pliant::testkit
