// What kernels of reductions and casts compute for one element: for CUDA's devices, for those that take SPIR-V, and for
// the CPU, where software devices of the tests run them. Same bits as pliant/sdk/arithmetic.hpp, but for the payload of
// NaN.
#pragma once

#if defined(__OPENCL_CPP_VERSION__)
using int32_t = int;
using int64_t = long;
using uint8_t = uchar;
using uint16_t = ushort;
using uint32_t = uint;
using uint64_t = ulong;
#define INT32_MIN INT_MIN
#define INT32_MAX INT_MAX
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
#define UINT8_MAX UCHAR_MAX
#define PLIANT_KERNEL_CODE inline
#else
#include <stdint.h>
#include <string.h>
#ifdef __CUDACC__
#define PLIANT_KERNEL_CODE __device__ __forceinline__
#else
#define PLIANT_KERNEL_CODE inline
#endif
#endif

namespace pliant::kernels {

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

template <class To, class From>
PLIANT_KERNEL_CODE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
#if defined(__OPENCL_CPP_VERSION__)
  return __builtin_astype(from, To);
#else
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
#endif
}

PLIANT_KERNEL_CODE float widen(BFloat value) {
  return bits_as<float>(static_cast<uint32_t>(value.bits) << 16U);
}
PLIANT_KERNEL_CODE float widen(Half value) {
  const uint32_t shifted = (value.bits & 0x7fffU) << 13U;
  const uint32_t exponent = shifted & 0x0f800000U;
  const uint32_t bias = static_cast<uint32_t>(127 - 15) << 23U;
  uint32_t magnitude = shifted + bias + (exponent == 0x0f800000U ? bias : 0U);
  if (exponent == 0) magnitude = bits_as<uint32_t>(bits_as<float>(shifted + bias + (1U << 23U)) - 0x1p-14F);
  return bits_as<float>(magnitude | (value.bits & 0x8000U) << 16U);
}

template <class T>
struct Narrowed;
/// The nearest, ties to even.
template <>
struct Narrowed<BFloat> {
  static PLIANT_KERNEL_CODE BFloat of(float value) {
    const uint32_t bits = bits_as<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U;
    return {static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? (bits >> 16U | 0x40U) : rounded)};
  }
};
template <>
struct Narrowed<Half> {
  static PLIANT_KERNEL_CODE Half of(float value) {
    const uint32_t bits = bits_as<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7fffffffU;
    const uint32_t bias = static_cast<uint32_t>(127 - 15) << 23U;
    uint32_t made = (magnitude - bias + 0xfffU + (magnitude >> 13U & 1U)) >> 13U;
    if (magnitude < 0x38800000U) made = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5F) - 0x3f000000U;
    if (magnitude >= 0x47800000U) made = 0x7c00U;
    if (magnitude > 0x7f800000U) made = 0x7e00U;
    return {static_cast<uint16_t>(made | (bits >> 16U & 0x8000U))};
  }
};

/// On the way from wider numbers to 16 bits: the last bit says that something was cut off, so that the next rounding is
/// the only one.
PLIANT_KERNEL_CODE float to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const uint32_t bits = bits_as<uint32_t>(nearest);
  const double back = nearest;
  if (!(back < value) && !(value < back)) return nearest;
  const bool away = back < 0 ? back < value : back > value;
  return bits_as<float>((bits - (away ? 1U : 0U)) | 1U);
}
/// By integers alone: not every device has doubles. The 14 bits that are kept at least are enough on the way to 16-bit
/// floats.
PLIANT_KERNEL_CODE uint64_t cut_odd(uint64_t value, uint32_t bits) {
  return value >> bits | ((value & ((static_cast<uint64_t>(1) << bits) - 1)) != 0 ? 1U : 0U);
}
PLIANT_KERNEL_CODE float to_odd(int64_t value) {
  uint64_t kept = static_cast<uint64_t>(value);
  if (value < 0) kept = 0 - kept;
  float unit = value < 0 ? -1.0F : 1.0F;
  if (kept >> 44U != 0) {
    kept = cut_odd(kept, 20);
    unit *= 0x1p20F;
  }
  if (kept >> 34U != 0) {
    kept = cut_odd(kept, 10);
    unit *= 0x1p10F;
  }
  if (kept >> 24U != 0) {
    kept = cut_odd(kept, 10);
    unit *= 0x1p10F;
  }
  return static_cast<float>(static_cast<uint32_t>(kept)) * unit;
}

/// What elements of T are computed in, and how they come and go.
template <class T>
struct Element {
  using Computed = T;
  enum { kIsHalf = 0 };
  static PLIANT_KERNEL_CODE T load(T value) { return value; }
  static PLIANT_KERNEL_CODE T store(T value) { return value; }
};
template <class T>
struct HalfElement {
  using Computed = float;
  enum { kIsHalf = 1 };
  static PLIANT_KERNEL_CODE float load(T value) { return widen(value); }
  static PLIANT_KERNEL_CODE T store(float value) { return Narrowed<T>::of(value); }
};
template <>
struct Element<Half> : HalfElement<Half> {};
template <>
struct Element<BFloat> : HalfElement<BFloat> {};

struct Sum {
  static PLIANT_KERNEL_CODE float fold(float a, float b) { return a + b; }
  static PLIANT_KERNEL_CODE double fold(double a, double b) { return a + b; }
  // Integers wrap around.
  static PLIANT_KERNEL_CODE int32_t fold(int32_t a, int32_t b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  }
  static PLIANT_KERNEL_CODE int64_t fold(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
  static PLIANT_KERNEL_CODE uint8_t fold(uint8_t a, uint8_t b) {
    return static_cast<uint8_t>(static_cast<uint32_t>(a) + b);
  }
};
struct Min {
  template <class T>
  static PLIANT_KERNEL_CODE T fold(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  static PLIANT_KERNEL_CODE T fold(T a, T b) {
    return a < b ? b : a;
  }
};

/// As `value`, where it can be scaled; integers are left alone.
PLIANT_KERNEL_CODE float scaled(float value, double scale) {
  return scale == 1 ? value : value * static_cast<float>(scale);
}
PLIANT_KERNEL_CODE float scaled(float value, float scale) {
  return scale == 1 ? value : value * scale;
}
PLIANT_KERNEL_CODE double scaled(double value, double scale) {
  return scale == 1 ? value : value * scale;
}
template <class T, class Scale>
PLIANT_KERNEL_CODE T scaled(T value, Scale) {
  return value;
}

/// An integer from a float: `bound` is one past the largest, a power of two.
template <class To, class From>
PLIANT_KERNEL_CODE To whole(From from, From least, From bound, To smallest, To largest) {
  if (!(from >= least)) return from < least ? smallest : To{0};
  return from < bound ? static_cast<To>(from) : largest;
}

template <class To>
struct Converted {
  template <class From>
  static PLIANT_KERNEL_CODE To of(From from) {
    return static_cast<To>(from);
  }
};
#define PLIANT_KERNEL_WHOLE(To, smallest, largest, bound)                                                   \
  template <>                                                                                               \
  struct Converted<To> {                                                                                    \
    static PLIANT_KERNEL_CODE To of(float from) {                                                           \
      return whole<To>(from, static_cast<float>(smallest), static_cast<float>(bound), smallest, largest);   \
    }                                                                                                       \
    static PLIANT_KERNEL_CODE To of(double from) {                                                          \
      return whole<To>(from, static_cast<double>(smallest), static_cast<double>(bound), smallest, largest); \
    }                                                                                                       \
    template <class From>                                                                                   \
    static PLIANT_KERNEL_CODE To of(From from) {                                                            \
      return static_cast<To>(from);                                                                         \
    }                                                                                                       \
  }
PLIANT_KERNEL_WHOLE(int32_t, INT32_MIN, INT32_MAX, 0x1p31);
PLIANT_KERNEL_WHOLE(int64_t, INT64_MIN, INT64_MAX, 0x1p63);
PLIANT_KERNEL_WHOLE(uint8_t, uint8_t{0}, UINT8_MAX, 0x1p8);
#undef PLIANT_KERNEL_WHOLE

/// What rounds twice on its way to 16 bits by way of a float, and what does not.
PLIANT_KERNEL_CODE float towards_half(double value) {
  return to_odd(value);
}
PLIANT_KERNEL_CODE float towards_half(int64_t value) {
  return to_odd(value);
}
PLIANT_KERNEL_CODE float towards_half(int32_t value) {
  return to_odd(static_cast<int64_t>(value));
}
PLIANT_KERNEL_CODE float towards_half(float value) {
  return value;
}
PLIANT_KERNEL_CODE float towards_half(uint8_t value) {
  return static_cast<float>(value);
}

template <bool kToHalf>
struct Step {
  template <class Computed, class From>
  static PLIANT_KERNEL_CODE Computed take(From from) {
    return Converted<Computed>::of(from);
  }
};
template <>
struct Step<true> {
  template <class Computed, class From>
  static PLIANT_KERNEL_CODE Computed take(From from) {
    return towards_half(from);
  }
};

/// The element as the other type.
template <class From, class To>
PLIANT_KERNEL_CODE To converted(From from) {
  using Computed = typename Element<To>::Computed;
  constexpr bool kToHalf = Element<To>::kIsHalf != 0;
  return Element<To>::store(Step<kToHalf>::template take<Computed>(Element<From>::load(from)));
}

}  // namespace pliant::kernels
