// What the kernels of reductions and casts compute for one element. Compiled for devices by nvcc, and for the CPU by
// the tests' software device. Same bits as pliant/sdk/arithmetic.hpp, but for the payload of NaN.
#pragma once

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define PLIANT_KERNEL_CODE __device__ __forceinline__
#else
#define PLIANT_KERNEL_CODE inline
#endif

namespace pliant::cuda::kernels {

enum { kThreads = 256, kFewSources = 16, kMostSources = 1024 };

/// The one argument of a reduction's kernel.
template <int kRoom>
struct ReduceArguments {
  void* to;
  uint64_t count;
  double scale;
  int32_t sources;
  const void* from[kRoom];
};

/// The one argument of a cast's kernel.
struct CastArguments {
  void* to;
  const void* from;
  uint64_t count;
};

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

template <class To, class From>
PLIANT_KERNEL_CODE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
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

/// The nearest, ties to even.
PLIANT_KERNEL_CODE void narrow(float value, BFloat& out) {
  const uint32_t bits = bits_as<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U;
  out.bits = static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? (bits >> 16U | 0x40U) : rounded);
}
PLIANT_KERNEL_CODE void narrow(float value, Half& out) {
  const uint32_t bits = bits_as<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffU;
  const uint32_t bias = static_cast<uint32_t>(127 - 15) << 23U;
  uint32_t made = (magnitude - bias + 0xfffU + (magnitude >> 13U & 1U)) >> 13U;
  if (magnitude < 0x38800000U) made = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5F) - 0x3f000000U;
  if (magnitude >= 0x47800000U) made = 0x7c00U;
  if (magnitude > 0x7f800000U) made = 0x7e00U;
  out.bits = static_cast<uint16_t>(made | (bits >> 16U & 0x8000U));
}

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
PLIANT_KERNEL_CODE float to_odd(int64_t value) {
  const int64_t low = 0xffff;
  const int64_t wide = static_cast<int64_t>(1) << 52U;
  if (value >= wide || value <= -wide) value = (value & ~low) | ((value & low) != 0 ? low + 1 : 0);
  return to_odd(static_cast<double>(value));
}

/// What elements of T are computed in, and how they come and go.
template <class T>
struct Element {
  using Computed = T;
  static constexpr bool kIsHalf = false;
  static PLIANT_KERNEL_CODE T load(T value) { return value; }
  static PLIANT_KERNEL_CODE void store(T value, T& out) { out = value; }
};
template <class T>
struct HalfElement {
  using Computed = float;
  static constexpr bool kIsHalf = true;
  static PLIANT_KERNEL_CODE float load(T value) { return widen(value); }
  static PLIANT_KERNEL_CODE void store(float value, T& out) { narrow(value, out); }
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

PLIANT_KERNEL_CODE float scaled(float value, double scale) {
  return scale == 1 ? value : value * static_cast<float>(scale);
}
PLIANT_KERNEL_CODE double scaled(double value, double scale) {
  return scale == 1 ? value : value * scale;
}
template <class T>
PLIANT_KERNEL_CODE T scaled(T value, double) {
  return value;
}

template <class T, class Op, int kRoom>
PLIANT_KERNEL_CODE void reduce_element(const ReduceArguments<kRoom>& job, uint64_t i) {
  typename Element<T>::Computed value = Element<T>::load(static_cast<const T*>(job.from[0])[i]);
  for (int32_t r = 1; r < job.sources; ++r) {
    value = Op::fold(value, Element<T>::load(static_cast<const T*>(job.from[r])[i]));
  }
  Element<T>::store(scaled(value, job.scale), static_cast<T*>(job.to)[i]);
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

template <class From, class To>
PLIANT_KERNEL_CODE void cast_element(const CastArguments& job, uint64_t i) {
  using Computed = typename Element<To>::Computed;
  const auto from = Element<From>::load(static_cast<const From*>(job.from)[i]);
  Element<To>::store(Step<Element<To>::kIsHalf>::template take<Computed>(from), static_cast<To*>(job.to)[i]);
}

}  // namespace pliant::cuda::kernels

// Every kernel: pliant_reduce_<op>_<type>, with _many for more than kFewSources sources, and pliant_cast_<from>_<to>.
#define PLIANT_KERNEL_TYPES(use) \
  use(f32, float) use(f64, double) use(i32, int32_t) use(i64, int64_t) use(u8, uint8_t) use(f16, Half) use(bf16, BFloat)
#define PLIANT_KERNEL_CASTS_TO(use, to, To)                                                            \
  use(f32, float, to, To) use(f64, double, to, To) use(i32, int32_t, to, To) use(i64, int64_t, to, To) \
      use(u8, uint8_t, to, To) use(f16, Half, to, To) use(bf16, BFloat, to, To)
