// What the slots of pliant/abi/optimizer.h compute, on the processors. Same input, same bits from every compiler, with
// every instruction set. Include it where -fno-math-errno is set: only then are roots vectorised.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "pliant/sdk/instructions.hpp"
#include "pliant/sdk/optimizer.hpp"

// Multiplication and addition stay two operations, also where the including file has instructions that fuse them.
#if defined(__GNUC__) && !defined(__clang__)
#define PLIANT_DETAIL_NOT_FUSED gnu::optimize("fp-contract=off")
#else
#define PLIANT_DETAIL_NOT_FUSED gnu::noinline
#endif

namespace pliant::sdk {

namespace detail::optimizer {

[[gnu::always_inline]] inline void update_all(const pliant_adamw_update& update, const AdamWArrays& arrays) {
#ifdef __clang__
#pragma clang fp contract(off)
#endif
  float* __restrict__ const weights = arrays.weights;
  const float* __restrict__ const gradient = arrays.gradient;
  float* __restrict__ const first = arrays.first_moment;
  float* __restrict__ const second = arrays.second_moment;
  const float scale = update.gradient_scale;
  const float beta1 = update.beta1;
  const float beta2 = update.beta2;
  const float rest1 = 1 - beta1;
  const float rest2 = 1 - beta2;
  const float rate = update.rate;
  const float correction = update.correction;
  const float epsilon = update.epsilon;
  const float decay = update.decay;
  const uint64_t count = arrays.count;
  for (uint64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * scale;
    const float m = beta1 * first[i] + rest1 * g;
    const float v = beta2 * second[i] + rest2 * g * g;
    const float w = weights[i];
    first[i] = m;
    second[i] = v;
    weights[i] = w - (rate * m / (__builtin_sqrtf(v) * correction + epsilon) + decay * w);
  }
}

inline constexpr size_t kLanes = 32;

[[gnu::always_inline]] inline double norm_of_chunk(const float* from, uint64_t count) {
  alignas(64) std::array<double, kLanes> lanes{};
  const uint64_t whole = count / kLanes * kLanes;
  for (uint64_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = from[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (uint64_t i = whole; i < count; ++i) {
    const double value = from[i];
    lanes[i - whole] += value * value;
  }
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

[[gnu::always_inline]] inline void norms_of(double* to, const float* from, uint64_t count) {
  for (uint64_t at = 0; at < count; at += kNormChunk)
    *to++ = norm_of_chunk(from + at, std::min(kNormChunk, count - at));
}

[[PLIANT_DETAIL_NOT_FUSED]] inline void update_anywhere(const pliant_adamw_update& update, const AdamWArrays& arrays) {
  update_all(update, arrays);
}
inline void norms_anywhere(double* to, const float* from, uint64_t count) {
  norms_of(to, from, count);
}

#ifdef __x86_64__
[[PLIANT_DETAIL_NOT_FUSED, gnu::target("avx2")]] inline void update_avx2(const pliant_adamw_update& update,
                                                                         const AdamWArrays& arrays) {
  update_all(update, arrays);
}
[[PLIANT_DETAIL_NOT_FUSED, gnu::target("avx512f,avx512vl")]] inline void update_avx512(
    const pliant_adamw_update& update, const AdamWArrays& arrays) {
  update_all(update, arrays);
}
[[gnu::target("avx2")]] inline void norms_avx2(double* to, const float* from, uint64_t count) {
  norms_of(to, from, count);
}
[[gnu::target("avx512f,avx512vl")]] inline void norms_avx512(double* to, const float* from, uint64_t count) {
  norms_of(to, from, count);
}
#endif

}  // namespace detail::optimizer

/// As adamw_async, with certain instructions that this machine has.
inline void adamw_with(Instructions instructions, const pliant_adamw_update& update, const AdamWArrays& arrays) {
#ifdef __x86_64__
  if (instructions == Instructions::kAvx512) return detail::optimizer::update_avx512(update, arrays);
  if (instructions == Instructions::kAvx2) return detail::optimizer::update_avx2(update, arrays);
#endif
  static_cast<void>(instructions);
  detail::optimizer::update_anywhere(update, arrays);
}

/// As squared_norms_async, with certain instructions that this machine has.
inline void squared_norms_with(Instructions instructions, double* to, const float* from, uint64_t count) {
#ifdef __x86_64__
  if (instructions == Instructions::kAvx512) return detail::optimizer::norms_avx512(to, from, count);
  if (instructions == Instructions::kAvx2) return detail::optimizer::norms_avx2(to, from, count);
#endif
  static_cast<void>(instructions);
  detail::optimizer::norms_anywhere(to, from, count);
}

/// One update; see adamw_async in pliant/abi/optimizer.h. O(count).
inline void adamw(const pliant_adamw_update& update, const AdamWArrays& arrays) {
  adamw_with(best_instructions(), update, arrays);
}

/// to[i] = the squared norm of the i-th chunk; see squared_norms_async in pliant/abi/optimizer.h. O(count).
inline void squared_norms(double* to, const float* from, uint64_t count) {
  squared_norms_with(best_instructions(), to, from, count);
}

}  // namespace pliant::sdk

#undef PLIANT_DETAIL_NOT_FUSED
