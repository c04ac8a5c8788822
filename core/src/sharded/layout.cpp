// ShardLayout: offsets are sums, chunks are powers of two.
#include "sharded/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "data/digest.hpp"

namespace pliant::sharded {

namespace {

constexpr int64_t aligned(int64_t element) {
  return (element + ShardLayout::kAlignment - 1) / ShardLayout::kAlignment * ShardLayout::kAlignment;
}

}  // namespace

static_assert(ShardLayout::kSmallestChunk == int64_t{1} << 10);

Result<ShardLayout> ShardLayout::create(std::span<const int64_t> counts) {
  if (counts.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return failed(Status::kInvalidArgument, fmt::format("a model of {} parameters has more than can be numbered, {}",
                                                        counts.size(), std::numeric_limits<int32_t>::max()));
  }
  ShardLayout layout;
  layout.counts_.assign(counts.begin(), counts.end());
  layout.offsets_.reserve(counts.size());
  layout.dense_offsets_.reserve(counts.size());
  int64_t end = 0;
  for (size_t param = 0; param < counts.size(); ++param) {
    const int64_t count = counts[param];
    if (count < 0) {
      return failed(Status::kInvalidArgument,
                    fmt::format("parameter {} has {} elements; 0 is the least", param, count));
    }
    const int64_t offset = aligned(end);
    if (offset > kMostElements || count > kMostElements - offset) {
      return failed(Status::kInvalidArgument,
                    fmt::format("the parameters up to number {} have more than 2^50 elements", param));
    }
    layout.offsets_.push_back(offset);
    layout.dense_offsets_.push_back(layout.param_elements_);
    layout.param_elements_ += count;
    if (count > 0) end = offset + count;
  }
  const auto chunks_at = [end](int32_t shift) { return (end + (int64_t{1} << shift) - 1) >> shift; };
  while (chunks_at(layout.chunk_shift_) > kMostChunks) ++layout.chunk_shift_;
  layout.chunks_ = static_cast<int32_t>(chunks_at(layout.chunk_shift_));
  return layout;
}

ChunkRange ShardLayout::chunks_of(FlatRange range) const {
  const ChunkId first = chunk_of(range.first);
  if (range.count <= 0) return {first, 0};
  const auto last = static_cast<int32_t>(chunk_of(range.end() - 1));
  return {first, last - static_cast<int32_t>(first) + 1};
}

std::vector<ParamPiece> ShardLayout::pieces_of(FlatRange range) const {
  std::vector<ParamPiece> pieces;
  // The last parameter that begins at or before the range; an empty one may begin where its successor does.
  const auto after = std::upper_bound(offsets_.begin(), offsets_.end(), range.first);
  auto param = static_cast<size_t>(std::max<int64_t>(0, after - offsets_.begin() - 1));
  for (; param < offsets_.size() && offsets_[param] < range.end(); ++param) {
    const int64_t begin = std::max(range.first, offsets_[param]);
    const int64_t end = std::min(range.end(), offsets_[param] + counts_[param]);
    if (begin >= end) continue;
    pieces.push_back({static_cast<ParamId>(param), begin - offsets_[param], end - begin, begin});
  }
  return pieces;
}

uint64_t ShardLayout::digest() const {
  data::Digest digest;
  digest.add(static_cast<uint64_t>(kAlignment));
  digest.add(static_cast<uint64_t>(chunk_elements()));
  digest.add(std::span<const int64_t>(counts_));
  return digest.value();
}

}  // namespace pliant::sharded
