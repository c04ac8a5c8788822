// Batches whose rows have the same number of sequences.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "pliant/sdk/batch_sampler.hpp"
#include "reorder.hpp"

namespace pliant::sampler {

/// Reorders rows so that all rows of a batch have the same number of entries: rows of the same number meet in a batch,
/// in the order in which they fill one. What is left over at the end, fewer than `batch` rows of each number, is
/// parted. The last batch may be short; with `fill` only where fewer than `batch` entries are left for it. O(rows +
/// entries).
void make_batches_equal(uint64_t batch, bool fill, sdk::EpochRows& rows);

}  // namespace pliant::sampler
