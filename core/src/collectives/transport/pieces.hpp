// What all transports cut their work with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "pliant/sdk/accelerator.hpp"

namespace pliant::collectives {

constexpr uint64_t kCacheLine = 64;  ///< bytes

struct Piece {
  uint64_t first = 0;
  uint64_t count = 0;
};

/// see(piece) for pieces of up to `most` elements; one empty piece of nothing, so that all ranks meet.
template <class See>
void in_pieces(uint64_t count, uint64_t most, See&& see) {
  uint64_t first = 0;
  do {
    const uint64_t some = std::min(most, count - first);
    see(Piece{first, some});
    first += some;
  } while (first < count);
}

/// Elements of each of `parts` parts that `bytes` hold.
inline uint64_t most_of(uint64_t bytes, sdk::DType dtype, int32_t parts) {
  return std::max<uint64_t>(1, bytes / sdk::size_of(dtype) / static_cast<uint64_t>(parts));
}

inline std::byte* at(void* base, uint64_t element, uint64_t width) {
  return static_cast<std::byte*>(base) + element * width;
}
inline const std::byte* at(const void* base, uint64_t element, uint64_t width) {
  return static_cast<const std::byte*>(base) + element * width;
}

inline int32_t raw(sdk::DType dtype) {
  return static_cast<int32_t>(dtype);
}
inline int32_t raw(sdk::ReduceOp op) {
  return static_cast<int32_t>(op);
}

}  // namespace pliant::collectives
