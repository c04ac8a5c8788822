// Sums whose results do not go through the caches, straight from the registers: of floats, which gradients are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace pliant::accelerator {

#ifdef __x86_64__
/// Whether streamed_sum may be called: for this target, on this machine.
inline bool has_streamed_sum(const void* out) {
  return reinterpret_cast<uintptr_t>(out) % 32 == 0 && __builtin_cpu_supports("avx2") != 0;
}

/// out[i] = ((inputs[0][i] + inputs[1][i]) + inputs[2][i]) + ..., the same bits as sdk::reduce gives; `also` receives
/// the same, through the caches, unless NULL. `out` begins on 32 bytes. Not ordered with later stores before a fence.
[[gnu::target("avx2")]] inline void streamed_sum(const std::vector<const void*>& inputs, uint64_t count, float* out,
                                                 float* also) {
  constexpr uint64_t kLine = 16;          // elements of a cache line
  constexpr uint64_t kAhead = 8 * kLine;  // asked for early: processors do not look beyond a page by themselves
  uint64_t at = 0;
  for (; at + kLine <= count; at += kLine) {
    // A line of each input at a time: whole blocks at once would queue up before the loads.
    const uint64_t next = std::min(at + kAhead, count - 1);
    for (const void* const all : inputs) __builtin_prefetch(static_cast<const float*>(all) + next);
    const float* input = static_cast<const float*>(inputs[0]) + at;
    __m256 low = _mm256_loadu_ps(input);
    __m256 high = _mm256_loadu_ps(input + kLine / 2);
    for (size_t r = 1; r < inputs.size(); ++r) {
      input = static_cast<const float*>(inputs[r]) + at;
      low = _mm256_add_ps(low, _mm256_loadu_ps(input));
      high = _mm256_add_ps(high, _mm256_loadu_ps(input + kLine / 2));
    }
    _mm256_stream_ps(out + at, low);
    _mm256_stream_ps(out + at + kLine / 2, high);
    if (also == nullptr) continue;
    _mm256_storeu_ps(also + at, low);
    _mm256_storeu_ps(also + at + kLine / 2, high);
  }
  for (; at < count; ++at) {
    float sum = static_cast<const float*>(inputs[0])[at];
    for (size_t r = 1; r < inputs.size(); ++r) sum += static_cast<const float*>(inputs[r])[at];
    out[at] = sum;
    if (also != nullptr) also[at] = sum;
  }
}

/// What was streamed comes before what is stored from now on.
inline void end_streaming() {
  _mm_sfence();
}
#else
inline bool has_streamed_sum(const void*) {
  return false;
}
inline void streamed_sum(const std::vector<const void*>&, uint64_t, float*, float*) {}
inline void end_streaming() {}
#endif

}  // namespace pliant::accelerator
