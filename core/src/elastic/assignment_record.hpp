// An assignment as a job keeps it: as the rows of each rank, and as a digest that tells two of them apart.
#pragma once

#include <cstdint>
#include <vector>

#include "pliant/balancer.hpp"

namespace pliant::elastic {

/// The rows of each rank as ranges that ascend and do not touch.
std::vector<std::vector<RowRange>> rows_of_ranks(const Assignment& assignment);

/// Depends on every block, its rank and its place there.
uint64_t digest_of(const Assignment& assignment);

}  // namespace pliant::elastic
