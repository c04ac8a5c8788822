// Arithmetic on arrays that the processors see: the reduction of several inputs in a fixed order, and conversion
// between element types. For accelerators that compute there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/half.hpp"
#include "pliant/sdk/instructions.hpp"

namespace pliant::sdk {

namespace detail::arithmetic {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;
/// What elements of T are computed in.
template <class T>
using Computed = std::conditional_t<kIsHalf<T>, float, T>;

template <class T>
inline Computed<T> load(const T& value) {
  if constexpr (kIsHalf<T>) {
    return widen(value);
  } else {
    return value;
  }
}
template <class T>
void store(Computed<T> value, T& out) {
  if constexpr (kIsHalf<T>) {
    narrow(value, out);
  } else {
    out = value;
  }
}

struct Sum {
  template <class T>
  static T fold(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;  // wraps instead of being undefined
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};
struct Min {
  template <class T>
  static T fold(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  static T fold(T a, T b) {
    return a < b ? b : a;
  }
};

/// What one reduction is about.
struct Reduction {
  std::span<const void* const> inputs;
  double scale;
  uint64_t count;
  void* out;
  void* also;
};

/// An eighth of the smallest first-level cache, so that a block of every input finds room beside it.
inline constexpr uint64_t kBlockBytes = 4096;
/// Inputs that one pass over a block takes in.
inline constexpr size_t kFused = 4;

/// sum[i] = sum[i] op from[0][i] op from[1][i] ...; without sum[i] where `fresh`.
template <class T, class Op, size_t kInputs, bool kFresh>
[[gnu::always_inline]] inline void fold_pass(Computed<T>* __restrict__ sum, const void* const* from, uint64_t at,
                                             uint64_t n) {
  const T* inputs[kInputs];
  for (size_t r = 0; r < kInputs; ++r) inputs[r] = static_cast<const T*>(from[r]) + at;
  for (uint64_t i = 0; i < n; ++i) {
    Computed<T> value = kFresh ? load(inputs[0][i]) : Op::fold(sum[i], load(inputs[0][i]));
    for (size_t r = 1; r < kInputs; ++r) value = Op::fold(value, load(inputs[r][i]));
    sum[i] = value;
  }
}

template <class T, class Op, bool kFresh>
[[gnu::always_inline]] inline void fold_some(Computed<T>* sum, const void* const* from, size_t inputs, uint64_t at,
                                             uint64_t n) {
  switch (inputs) {
    case 1:
      return fold_pass<T, Op, 1, kFresh>(sum, from, at, n);
    case 2:
      return fold_pass<T, Op, 2, kFresh>(sum, from, at, n);
    case 3:
      return fold_pass<T, Op, 3, kFresh>(sum, from, at, n);
    default:
      return fold_pass<T, Op, kFused, kFresh>(sum, from, at, n);
  }
}

template <class T, class Op>
[[gnu::always_inline]] inline void reduce_blocks(const Reduction& job) {
  using C = Computed<T>;
  constexpr uint64_t kBlock = kBlockBytes / sizeof(C);
  alignas(64) C sum[kBlock];
  alignas(64) T narrowed[kIsHalf<T> ? kBlock : 1];
  for (uint64_t at = 0; at < job.count; at += kBlock) {
    const uint64_t n = std::min(kBlock, job.count - at);
    const size_t first = std::min(job.inputs.size(), kFused);
    fold_some<T, Op, true>(sum, job.inputs.data(), first, at, n);
    for (size_t r = first; r < job.inputs.size(); r += kFused)
      fold_some<T, Op, false>(sum, &job.inputs[r], std::min(job.inputs.size() - r, kFused), at, n);
    if constexpr (std::is_floating_point_v<C>) {
      if (job.scale != 1) {
        for (uint64_t i = 0; i < n; ++i) sum[i] *= static_cast<C>(job.scale);
      }
    }
    const void* made = sum;
    if constexpr (kIsHalf<T>) {
      for (uint64_t i = 0; i < n; ++i) store<T>(sum[i], narrowed[i]);
      made = narrowed;
    }
    T* to = static_cast<T*>(job.out) + at;
    std::memcpy(to, made, n * sizeof(T));
    if (job.also != nullptr) std::memcpy(static_cast<T*>(job.also) + at, made, n * sizeof(T));
  }
}

template <class T, class Op>
void reduce_anywhere(const Reduction& job) {
  reduce_blocks<T, Op>(job);
}

#ifdef __x86_64__
/// Without fused multiply-add, which would round differently.
template <class T, class Op>
[[gnu::target("avx2")]] void reduce_avx2(const Reduction& job) {
  reduce_blocks<T, Op>(job);
}
#endif

template <class T, class Op>
void reduce_typed(Instructions instructions, const Reduction& job) {
#ifdef __x86_64__
  if (instructions != Instructions::kEveryMachine) return reduce_avx2<T, Op>(job);
#endif
  static_cast<void>(instructions);
  reduce_anywhere<T, Op>(job);
}

template <class T>
void reduce_by(Instructions instructions, ReduceOp op, const Reduction& job) {
  switch (op) {
    case ReduceOp::kSum:
      return reduce_typed<T, Sum>(instructions, job);
    case ReduceOp::kMin:
      return reduce_typed<T, Min>(instructions, job);
    case ReduceOp::kMax:
      return reduce_typed<T, Max>(instructions, job);
  }
}

/// run(T{}) for the type of elements.
template <class Run>
void with_type(DType dtype, Run&& run) {
  switch (dtype) {
    case DType::kF32:
      return run(float{});
    case DType::kF64:
      return run(double{});
    case DType::kI32:
      return run(int32_t{});
    case DType::kI64:
      return run(int64_t{});
    case DType::kU8:
      return run(uint8_t{});
    case DType::kF16:
      return run(Half{});
    case DType::kBF16:
      return run(BFloat{});
  }
}

template <class To, class From>
To converted(From from) {
  if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    // The bound above is a power of two, which floats have; what is not below it, and NaN, would be undefined.
    constexpr auto kLeast = static_cast<From>(std::numeric_limits<To>::min());
    constexpr auto kHalfway = std::numeric_limits<To>::max() / 2 + 1;
    constexpr auto kBound = static_cast<From>(kHalfway) * 2;
    if (!(from >= kLeast)) return from < kLeast ? std::numeric_limits<To>::min() : To{0};
    return from < kBound ? static_cast<To>(from) : std::numeric_limits<To>::max();
  } else {
    return static_cast<To>(from);
  }
}

template <class From, class To>
void cast_typed(const From* from, To* to, uint64_t count) {
  constexpr bool kWider =
      std::is_same_v<From, double> || std::is_same_v<From, int32_t> || std::is_same_v<From, int64_t>;
  if constexpr (kIsHalf<To> && kWider) {
    using Wide = std::conditional_t<std::is_same_v<From, double>, double, int64_t>;
    for (uint64_t i = 0; i < count; ++i) store<To>(to_odd(static_cast<Wide>(from[i])), to[i]);
  } else {
    for (uint64_t i = 0; i < count; ++i) store<To>(converted<Computed<To>>(load(from[i])), to[i]);
  }
}

}  // namespace detail::arithmetic

/// As reduce(), with certain instructions.
inline void reduce_with(Instructions instructions, DType dtype, ReduceOp op, std::span<const void* const> inputs,
                        double scale, uint64_t count, void* out, void* also = nullptr) {
  const detail::arithmetic::Reduction job{inputs, scale, count, out, also};
  detail::arithmetic::with_type(
      dtype, [&](auto type) { detail::arithmetic::reduce_by<decltype(type)>(instructions, op, job); });
}

/// out[i] = (((inputs[0][i] op inputs[1][i]) op inputs[2][i]) op ...) * scale, whatever the block or the machine: same
/// inputs, same bits. Integers wrap around and have scale 1. 16-bit floats are added and scaled as floats and rounded
/// once, to the nearest, ties to even. `also` receives the same unless NULL. `out` and `also` may be any one of the
/// inputs. O(inputs * count), every input read once.
inline void reduce(DType dtype, ReduceOp op, std::span<const void* const> inputs, double scale, uint64_t count,
                   void* out, void* also = nullptr) {
  reduce_with(best_instructions(), dtype, op, inputs, scale, count, out, also);
}

/// to[i] = from[i] as the other type: a float is the nearest, ties to even, and infinity past the largest; an integer
/// from a float is that without its fraction, within its range, 0 from NaN; an integer from a wider one wraps around.
/// The ranges must not overlap.
inline void cast(DType from_type, const void* from, DType to_type, void* to, uint64_t count) {
  if (from_type == to_type) {
    if (from != to) std::memcpy(to, from, count * size_of(from_type));
    return;
  }
  detail::arithmetic::with_type(from_type, [&](auto source) {
    detail::arithmetic::with_type(to_type, [&](auto target) {
      detail::arithmetic::cast_typed(static_cast<const decltype(source)*>(from), static_cast<decltype(target)*>(to),
                                     count);
    });
  });
}

}  // namespace pliant::sdk
