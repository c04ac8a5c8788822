// Reduction loops that the compiler vectorises: one per element type and operation.
#include "kernel/reduce.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace pliant::accelerator {
namespace {

using sdk::DType;
using sdk::ReduceOp;

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
void reduce_typed(std::span<const void* const> inputs, uint64_t count, void* out, void* also) {
  constexpr uint64_t kBlock = kBlockBytes / sizeof(T);
  alignas(64) T sum[kBlock];
  for (uint64_t at = 0; at < count; at += kBlock) {
    const uint64_t n = std::min(kBlock, count - at);
    std::memcpy(sum, static_cast<const T*>(inputs[0]) + at, n * sizeof(T));
    for (size_t r = 1; r < inputs.size(); ++r) {
      const T* next = static_cast<const T*>(inputs[r]) + at;
      for (uint64_t i = 0; i < n; ++i) sum[i] = Op::fold(sum[i], next[i]);
    }
    std::memcpy(static_cast<T*>(out) + at, sum, n * sizeof(T));
    if (also != nullptr) std::memcpy(static_cast<T*>(also) + at, sum, n * sizeof(T));
  }
}

template <class T>
void reduce_by(ReduceOp op, std::span<const void* const> inputs, uint64_t count, void* out, void* also) {
  switch (op) {
    case ReduceOp::kSum:
      return reduce_typed<T, Sum>(inputs, count, out, also);
    case ReduceOp::kMin:
      return reduce_typed<T, Min>(inputs, count, out, also);
    case ReduceOp::kMax:
      return reduce_typed<T, Max>(inputs, count, out, also);
  }
}

}  // namespace

void reduce(DType dtype, ReduceOp op, std::span<const void* const> inputs, uint64_t count, void* out, void* also) {
  switch (dtype) {
    case DType::kF32:
      return reduce_by<float>(op, inputs, count, out, also);
    case DType::kF64:
      return reduce_by<double>(op, inputs, count, out, also);
    case DType::kI32:
      return reduce_by<int32_t>(op, inputs, count, out, also);
    case DType::kI64:
      return reduce_by<int64_t>(op, inputs, count, out, also);
    case DType::kU8:
      return reduce_by<uint8_t>(op, inputs, count, out, also);
  }
}

}  // namespace pliant::accelerator
