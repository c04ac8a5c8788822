// Batches of rows of like cost: sorted within windows of some batches, the batches of a window shuffled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "pliant/sdk/batch_sampler.hpp"
#include "python_shuffle.hpp"
#include "reorder.hpp"

namespace pliant::sampler {

/// Within each `window` batches, the rows of least cost form a batch, then those of the next, and so on; where the last
/// batch is short it gets the rows of least cost and stays the last. Rows of a batch keep their order, so that they are
/// not sorted by cost. Which rows form a batch follows from the seed, the epoch and the rows, never from ranks. The ids
/// of `rows` are written out.
void sort_in_cost_windows(const sdk::EpochRequest& request, uint64_t window, int64_t quadratic_length,
                          sdk::EpochRows& rows);

}  // namespace pliant::sampler
