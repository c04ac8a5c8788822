// Sizes that 32 bits do not hold. Each is one of the checks of its operation.
#pragma once

#include "testkit/ranks.hpp"

namespace pliant::testkit {

void huge_copy(const Subject& subject);
void huge_reduction(const Subject& subject);
void huge_cast(const Subject& subject);
void huge_collectives(const Subject& subject);
/// What the ranks of the last one run.
Script huge_script();

}  // namespace pliant::testkit
