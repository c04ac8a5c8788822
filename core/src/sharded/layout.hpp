// ShardLayout: where every parameter of a model lies in one flat space of f32 elements, and the chunks that it is cut
// into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"

namespace pliant::sharded {

/// Parameters count from 0 in the order in which they were added, chunks in the order of the flat space.
enum class ParamId : int32_t {};
enum class ChunkId : int32_t {};

[[nodiscard]] constexpr size_t index_of(ParamId param) noexcept {
  return static_cast<size_t>(param);
}
[[nodiscard]] constexpr size_t index_of(ChunkId chunk) noexcept {
  return static_cast<size_t>(chunk);
}
/// `chunk` and `steps` further.
[[nodiscard]] constexpr ChunkId advanced(ChunkId chunk, int32_t steps) noexcept {
  return static_cast<ChunkId>(static_cast<int32_t>(chunk) + steps);
}

/// Elements first..first+count of the flat space.
struct FlatRange {
  int64_t first = 0;
  int64_t count = 0;
  [[nodiscard]] int64_t end() const noexcept { return first + count; }
  friend bool operator==(const FlatRange&, const FlatRange&) = default;
};

/// Chunks first..first+count.
struct ChunkRange {
  ChunkId first{};
  int32_t count = 0;
  friend bool operator==(const ChunkRange&, const ChunkRange&) = default;
};

/// Elements of one parameter that lie side by side: elements first..first+count of `param`, from `offset` of the flat
/// space on.
struct ParamPiece {
  ParamId param{};
  int64_t first = 0;
  int64_t count = 0;
  int64_t offset = 0;
  friend bool operator==(const ParamPiece&, const ParamPiece&) = default;
};

/// A function of the sizes of the parameters alone, never of the world size. Parameters lie one after the other; each
/// begins at a multiple of kAlignment elements, so that no digest block holds elements of two. What lies between two
/// parameters, and after the last, is padding and holds zeros. The flat space ends with a whole chunk.
class ShardLayout {
 public:
  static constexpr int64_t kAlignment = 256;       ///< elements: 1 KiB, a digest block
  static constexpr int64_t kSmallestChunk = 1024;  ///< elements
  static constexpr int32_t kMostChunks = 1 << 20;  ///< a chunk doubles until there are no more
  static constexpr int64_t kMostElements = int64_t{1} << 50;

  /// Of no parameters.
  ShardLayout() = default;
  /// `counts`: elements of each parameter; 0 is allowed. kInvalidArgument for a negative count, for more than
  /// kMostElements in all and for more parameters than an int32_t counts.
  static Result<ShardLayout> create(std::span<const int64_t> counts);

  [[nodiscard]] int32_t params() const noexcept { return static_cast<int32_t>(counts_.size()); }
  [[nodiscard]] int32_t chunks() const noexcept { return chunks_; }
  [[nodiscard]] int64_t chunk_elements() const noexcept { return int64_t{1} << chunk_shift_; }
  /// Of the flat space, padding included: chunks() * chunk_elements().
  [[nodiscard]] int64_t flat_elements() const noexcept { return int64_t{chunks_} << chunk_shift_; }
  /// Of all parameters, without padding.
  [[nodiscard]] int64_t param_elements() const noexcept { return param_elements_; }

  /// Where a parameter lies. O(1), as all below unless said otherwise. Ids must be of this layout.
  [[nodiscard]] FlatRange range_of(ParamId param) const {
    return {offsets_[index_of(param)], counts_[index_of(param)]};
  }
  [[nodiscard]] FlatRange range_of(ChunkRange chunks) const {
    return {static_cast<int64_t>(chunks.first) << chunk_shift_, int64_t{chunks.count} << chunk_shift_};
  }
  /// Where a parameter begins in the dense order: all parameters one after the other without padding, which is how an
  /// array of a replicated model lies.
  [[nodiscard]] int64_t dense_offset_of(ParamId param) const { return dense_offsets_[index_of(param)]; }
  [[nodiscard]] ChunkId chunk_of(int64_t element) const { return static_cast<ChunkId>(element >> chunk_shift_); }
  /// The chunks that hold elements of a range, or of a parameter; none for an empty one.
  [[nodiscard]] ChunkRange chunks_of(FlatRange range) const;
  [[nodiscard]] ChunkRange chunks_of(ParamId param) const { return chunks_of(range_of(param)); }
  /// What a range, or a chunk, holds of the parameters, ascending, without padding and without empty pieces.
  /// O(log(parameters) + parameters in the range).
  [[nodiscard]] std::vector<ParamPiece> pieces_of(FlatRange range) const;
  [[nodiscard]] std::vector<ParamPiece> pieces_of(ChunkId chunk) const { return pieces_of(range_of({chunk, 1})); }

  /// Equal for layouts that are equal, and for no others that occur.
  [[nodiscard]] uint64_t digest() const;
  friend bool operator==(const ShardLayout& left, const ShardLayout& right) { return left.counts_ == right.counts_; }

 private:
  std::vector<int64_t> counts_;
  std::vector<int64_t> offsets_;
  std::vector<int64_t> dense_offsets_;
  int64_t param_elements_ = 0;
  int32_t chunks_ = 0;
  int32_t chunk_shift_ = 10;
};

}  // namespace pliant::sharded
