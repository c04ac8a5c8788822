// FlatLayout: the flat space of f32 elements in which the parameters of a model lie one after the other, and the chunks
// that it is cut into.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.hpp"

namespace pliant::sharded {

/// Chunks count from 0 in the order of the flat space.
enum class ChunkId : int32_t {};

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

/// A function of the number of elements alone, never of the world size. The last chunk may reach past them.
class FlatLayout {
 public:
  static constexpr int64_t kSmallestChunk = 1024;  ///< elements
  static constexpr int32_t kMostChunks = 1 << 20;  ///< a chunk doubles until there are no more
  static constexpr int64_t kMostElements = int64_t{1} << 50;

  /// Of no elements.
  FlatLayout() = default;
  /// kInvalidArgument for a negative number and for more than kMostElements.
  static Result<FlatLayout> create(int64_t elements);

  [[nodiscard]] int64_t elements() const noexcept { return elements_; }
  [[nodiscard]] int32_t chunks() const noexcept { return chunks_; }
  [[nodiscard]] int64_t chunk_elements() const noexcept { return int64_t{1} << chunk_shift_; }

  [[nodiscard]] FlatRange range_of(ChunkRange chunks) const {
    return {static_cast<int64_t>(chunks.first) << chunk_shift_, int64_t{chunks.count} << chunk_shift_};
  }
  [[nodiscard]] ChunkId chunk_of(int64_t element) const { return static_cast<ChunkId>(element >> chunk_shift_); }
  /// The chunks that hold elements of a range; none for an empty one.
  [[nodiscard]] ChunkRange chunks_of(FlatRange range) const;

 private:
  int64_t elements_ = 0;
  int32_t chunks_ = 0;
  int32_t chunk_shift_ = 10;
};

}  // namespace pliant::sharded
