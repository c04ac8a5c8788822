// The dense order: all parameters one after the other without padding, as an array of a replicated model lies. Ways
// between it and the flat space of shards, so that each mode loads what the other saved.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sharded/layout.hpp"

namespace pliant::sharded {

/// Elements that lie side by side in both orders.
struct DenseRun {
  int64_t dense = 0;   ///< the first, in the dense order
  int64_t offset = 0;  ///< the first, in the flat space
  int64_t count = 0;
  friend bool operator==(const DenseRun&, const DenseRun&) = default;
};

/// What a range of the flat space holds, ascending; padding is in none.
std::vector<DenseRun> dense_runs_of(const ShardLayout& layout, FlatRange range);
/// Where elements first..first+count of the dense order lie in the flat space, ascending. O(log(parameters) +
/// parameters in the range).
std::vector<DenseRun> flat_runs_of(const ShardLayout& layout, int64_t first, int64_t count);

/// `range` of the flat space out of a whole dense array; padding becomes 0. `dense` has layout.param_elements()
/// elements, `to` has range.count.
void from_dense(const ShardLayout& layout, std::span<const float> dense, FlatRange range, float* to);
/// The other way: the elements of `range` to their places in a whole dense array, padding to none.
void to_dense(const ShardLayout& layout, const float* from, FlatRange range, std::span<float> dense);

}  // namespace pliant::sharded
