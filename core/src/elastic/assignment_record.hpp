// What a job's ranks must have in common of a step: an assignment as the rows of each rank, and digests that tell two
// assignments, batches or answers of learning-rate rules apart.
#pragma once

#include <cstdint>
#include <vector>

#include "pliant/balancer.hpp"
#include "pliant/batches.hpp"
#include "pliant/learning_rate.hpp"

namespace pliant::elastic {

/// The rows of each rank as ranges that ascend and do not touch.
std::vector<std::vector<RowRange>> rows_of_ranks(const Assignment& assignment);

/// Depends on every block, its rank and its place there.
uint64_t digest_of(const Assignment& assignment);

/// Depends on what each row holds and on their order. O(batch).
uint64_t digest_of(const Batch& batch);

/// All of its numbers.
std::vector<double> numbers_of(const Scaling& scaling);

}  // namespace pliant::elastic
