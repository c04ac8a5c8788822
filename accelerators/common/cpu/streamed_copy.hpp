// A copy whose target does not go through the caches: for results that are too large to be found there later.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace pliant::accelerator {

/// As memcpy. Saves reading what is overwritten, and leaves in the caches what others will read.
inline void streamed_copy(void* to, const void* from, uint64_t bytes) {
#ifdef __SSE2__
  constexpr uint64_t kLine = 64;
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  const uint64_t head = std::min((kLine - reinterpret_cast<uintptr_t>(target) % kLine) % kLine, bytes);
  std::memcpy(target, source, head);
  uint64_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* read = reinterpret_cast<const __m128i*>(source + at);
    auto* write = reinterpret_cast<__m128i*>(target + at);
    const __m128i a = _mm_loadu_si128(read);
    const __m128i b = _mm_loadu_si128(read + 1);
    const __m128i c = _mm_loadu_si128(read + 2);
    const __m128i d = _mm_loadu_si128(read + 3);
    _mm_stream_si128(write, a);
    _mm_stream_si128(write + 1, b);
    _mm_stream_si128(write + 2, c);
    _mm_stream_si128(write + 3, d);
  }
  std::memcpy(target + at, source + at, bytes - at);
  _mm_sfence();  // these stores are not ordered with others
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace pliant::accelerator
