// Loops that the compiler vectorises: one per element type and operation.
#include "kernel/reduce.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernel/half.hpp"

namespace pliant::accelerator {
namespace {

using sdk::DType;
using sdk::ReduceOp;

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;
/// What elements of T are computed in.
template <class T>
using Computed = std::conditional_t<kIsHalf<T>, float, T>;

template <class T>
Computed<T> load(const T& value) {
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

/// Half of the smallest first-level cache.
constexpr uint64_t kBlockBytes = 16384;

template <class T, class Op>
void reduce_typed(std::span<const void* const> inputs, double scale, uint64_t count, void* out, void* also) {
  using C = Computed<T>;
  constexpr uint64_t kBlock = kBlockBytes / sizeof(C);
  alignas(64) C sum[kBlock];
  for (uint64_t at = 0; at < count; at += kBlock) {
    const uint64_t n = std::min(kBlock, count - at);
    const T* first = static_cast<const T*>(inputs[0]) + at;
    for (uint64_t i = 0; i < n; ++i) sum[i] = load(first[i]);
    for (size_t r = 1; r < inputs.size(); ++r) {
      const T* next = static_cast<const T*>(inputs[r]) + at;
      for (uint64_t i = 0; i < n; ++i) sum[i] = Op::fold(sum[i], load(next[i]));
    }
    if constexpr (std::is_floating_point_v<C>) {
      if (scale != 1) {
        for (uint64_t i = 0; i < n; ++i) sum[i] *= static_cast<C>(scale);
      }
    }
    T* to = static_cast<T*>(out) + at;
    for (uint64_t i = 0; i < n; ++i) store<T>(sum[i], to[i]);
    if (also != nullptr) std::memcpy(static_cast<T*>(also) + at, to, n * sizeof(T));
  }
}

template <class T>
void reduce_by(ReduceOp op, std::span<const void* const> inputs, double scale, uint64_t count, void* out, void* also) {
  switch (op) {
    case ReduceOp::kSum:
      return reduce_typed<T, Sum>(inputs, scale, count, out, also);
    case ReduceOp::kMin:
      return reduce_typed<T, Min>(inputs, scale, count, out, also);
    case ReduceOp::kMax:
      return reduce_typed<T, Max>(inputs, scale, count, out, also);
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

}  // namespace

void reduce(DType dtype, ReduceOp op, std::span<const void* const> inputs, double scale, uint64_t count, void* out,
            void* also) {
  with_type(dtype, [&](auto type) { reduce_by<decltype(type)>(op, inputs, scale, count, out, also); });
}

void cast(DType from_type, const void* from, DType to_type, void* to, uint64_t count) {
  if (from_type == to_type) {
    if (from != to) std::memcpy(to, from, count * sdk::size_of(from_type));
    return;
  }
  with_type(from_type, [&](auto source) {
    with_type(to_type, [&](auto target) {
      using From = decltype(source);
      using To = decltype(target);
      const From* read = static_cast<const From*>(from);
      To* write = static_cast<To*>(to);
      for (uint64_t i = 0; i < count; ++i) store<To>(converted<Computed<To>>(load(read[i])), write[i]);
    });
  });
}

}  // namespace pliant::accelerator
