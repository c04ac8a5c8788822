// The parts of work_checks().
#pragma once

#include <vector>

#include "testkit/check.hpp"

namespace pliant::testkit {

std::vector<Check> copy_checks();
std::vector<Check> reduce_checks();
std::vector<Check> cast_checks();
std::vector<Check> digest_checks();

}  // namespace pliant::testkit
