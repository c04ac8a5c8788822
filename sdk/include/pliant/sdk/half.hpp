// The two 16-bit floating types in memory: IEEE binary16 and bfloat16, to and from float. Written so that compilers
// turn loops over them into vector code: no branches, integer arithmetic.
#pragma once

#include <bit>
#include <cstdint>

namespace pliant::sdk {

/// IEEE 754 binary16.
struct Half {
  uint16_t bits = 0;
};
/// The upper half of a float.
struct BFloat {
  uint16_t bits = 0;
};

/// Exact.
inline float widen(BFloat value) {
  return std::bit_cast<float>(uint32_t{value.bits} << 16U);
}
/// Exact, subnormal numbers too.
inline float widen(Half value) {
  constexpr uint32_t kExponent = 0x0f800000;    // binary16's exponent where float has its own
  constexpr uint32_t kBias = (127 - 15) << 23;  // from one bias to the other
  const uint32_t shifted = (value.bits & 0x7fffU) << 13U;
  const uint32_t exponent = shifted & kExponent;
  const uint32_t normal = shifted + kBias + (exponent == kExponent ? kBias : 0U);  // infinity and NaN keep their kind
  // A subnormal is m * 2^-24: as the mantissa of a number with exponent -14, less 2^-14.
  constexpr uint32_t kOne = uint32_t{1} << 23U;
  const float subnormal = std::bit_cast<float>(shifted + kBias + kOne) - 0x1p-14F;
  const uint32_t magnitude = exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : normal;
  return std::bit_cast<float>(magnitude | (uint32_t{value.bits} & 0x8000U) << 16U);
}

/// The nearest, ties to even. NaN stays NaN.
inline void narrow(float value, BFloat& out) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U;
  const uint32_t quiet = bits >> 16U | 0x40U;
  out.bits = static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}
/// The nearest, ties to even; infinity from 65520 on. NaN stays NaN.
inline void narrow(float value, Half& out) {
  constexpr uint32_t kInfinity = 0x7f800000;
  constexpr uint32_t kTooLarge = 0x47800000;   // 2^16
  constexpr uint32_t kSubnormal = 0x38800000;  // 2^-14
  constexpr uint32_t kBias = (127 - 15) << 23;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffU;
  const uint32_t normal = (magnitude - kBias + 0xfffU + (magnitude >> 13U & 1U)) >> 13U;
  // The sum with 1/2 has 2^-24 as its last place: it rounds as binary16 does.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  uint32_t made = magnitude < kSubnormal ? subnormal : normal;
  made = magnitude >= kTooLarge ? 0x7c00U : made;
  made = magnitude > kInfinity ? 0x7e00U : made;
  out.bits = static_cast<uint16_t>(made | (bits >> 16U & 0x8000U));
}

/// A float on the way from wider numbers to 16 bits: what does not fit is cut off, and the last bit says that something
/// was. Rounding it then rounds once.
inline float to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto bits = std::bit_cast<uint32_t>(nearest);
  const double back = nearest;
  const bool exact = !(back < value) && !(value < back);  // NaN, too
  const bool away = back < 0 ? back < value : back > value;
  return exact ? nearest : std::bit_cast<float>((bits - (away ? 1U : 0U)) | 1U);
}
/// From 2^52 on the low 16 bits become one that says whether there were any, so that double holds the rest.
inline float to_odd(int64_t value) {
  constexpr int64_t kLow = 0xffff;
  constexpr int64_t kWide = int64_t{1} << 52U;
  const bool wide = value >= kWide || value <= -kWide;
  const int64_t kept = (value & ~kLow) | ((value & kLow) != 0 ? kLow + 1 : 0);
  return to_odd(static_cast<double>(wide ? kept : value));
}

}  // namespace pliant::sdk
