// FlatLayout: chunks are powers of two.
#include "sharded/shards/layout.hpp"

#include <fmt/format.h>

namespace pliant::sharded {

static_assert(FlatLayout::kSmallestChunk == int64_t{1} << 10);

Result<FlatLayout> FlatLayout::create(int64_t elements) {
  if (elements < 0 || elements > kMostElements) {
    return failed(Status::kInvalidArgument,
                  fmt::format("a model cannot have {} elements; allowed: 0 to 2^50", elements));
  }
  FlatLayout layout;
  layout.elements_ = elements;
  const auto chunks_at = [elements](int32_t shift) { return (elements + (int64_t{1} << shift) - 1) >> shift; };
  while (chunks_at(layout.chunk_shift_) > kMostChunks) ++layout.chunk_shift_;
  layout.chunks_ = static_cast<int32_t>(chunks_at(layout.chunk_shift_));
  return layout;
}

ChunkRange FlatLayout::chunks_of(FlatRange range) const {
  const ChunkId first = chunk_of(range.first);
  if (range.count <= 0) return {first, 0};
  const auto last = static_cast<int32_t>(chunk_of(range.end() - 1));
  return {first, last - static_cast<int32_t>(first) + 1};
}

}  // namespace pliant::sharded
