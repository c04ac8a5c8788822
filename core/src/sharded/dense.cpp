// Dense arrays into the flat space and back.
#include "sharded/dense.hpp"

#include <algorithm>

namespace pliant::sharded {

std::vector<DenseRun> dense_runs_of(const ShardLayout& layout, FlatRange range) {
  std::vector<DenseRun> runs;
  for (const ParamPiece& piece : layout.pieces_of(range)) {
    const DenseRun run{layout.dense_offset_of(piece.param) + piece.first, piece.offset, piece.count};
    const bool goes_on = !runs.empty() && runs.back().dense + runs.back().count == run.dense &&
                         runs.back().offset + runs.back().count == run.offset;
    if (goes_on) {
      runs.back().count += run.count;
    } else {
      runs.push_back(run);
    }
  }
  return runs;
}

std::vector<DenseRun> flat_runs_of(const ShardLayout& layout, int64_t first, int64_t count) {
  if (count <= 0 || layout.params() == 0) return {};
  // The flat offset grows with the dense one, so the ends of a range are the ends of its image.
  const auto offset_of = [&layout](int64_t dense) {
    int32_t low = 0;
    int32_t high = layout.params();
    while (high - low > 1) {
      const int32_t middle = low + (high - low) / 2;
      (layout.dense_offset_of(ParamId{middle}) <= dense ? low : high) = middle;
    }
    return layout.range_of(ParamId{low}).first + dense - layout.dense_offset_of(ParamId{low});
  };
  const int64_t begin = offset_of(first);
  return dense_runs_of(layout, {begin, offset_of(first + count - 1) + 1 - begin});
}

void from_dense(const ShardLayout& layout, std::span<const float> dense, FlatRange range, float* to) {
  std::fill_n(to, range.count, 0.0F);
  for (const DenseRun& run : dense_runs_of(layout, range)) {
    std::copy_n(dense.data() + run.dense, run.count, to + (run.offset - range.first));
  }
}

void to_dense(const ShardLayout& layout, const float* from, FlatRange range, std::span<float> dense) {
  for (const DenseRun& run : dense_runs_of(layout, range)) {
    std::copy_n(from + (run.offset - range.first), run.count, dense.data() + run.dense);
  }
}

}  // namespace pliant::sharded
