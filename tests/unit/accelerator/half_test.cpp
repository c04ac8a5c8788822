// 16-bit floats of the SDK, against their definition.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "pliant/sdk/half.hpp"

using pliant::sdk::BFloat;
using pliant::sdk::Half;

namespace {

/// The value of a 16-bit float by its definition. `mantissa` bits of it, exponents from `least` on.
double defined_value(uint16_t bits, int mantissa, int least) {
  const int exponents = 1 << (15 - mantissa);
  const int exponent = bits >> mantissa & (exponents - 1);
  const int fraction = bits & ((1 << mantissa) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == exponents - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  const double whole = exponent == 0 ? 0.0 : 1.0;
  return sign * std::ldexp(whole + std::ldexp(fraction, -mantissa), least + std::max(exponent, 1) - 1);
}
double value_of(Half value) {
  return defined_value(value.bits, 10, -14);
}
double value_of(BFloat value) {
  return defined_value(value.bits, 7, -126);
}

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

/// What narrow must give, by looking at both neighbours: the nearer, the even one of two that are as near; infinity
/// counts as the next number after the largest.
template <class T>
uint16_t nearest(float value) {
  // Magnitudes of all bits up to infinity, which counts as the next number after the largest.
  static const std::vector<double> magnitudes = [] {
    std::vector<double> made;
    for (uint16_t bits = 0; !std::isinf(value_of(T{bits})); ++bits) made.push_back(value_of(T{bits}));
    made.push_back(2 * made.back() - made[made.size() - 2]);
    return made;
  }();
  const double wanted = std::abs(static_cast<double>(value));
  const auto above = std::lower_bound(magnitudes.begin(), magnitudes.end(), wanted);
  auto best = static_cast<uint16_t>(above - magnitudes.begin());
  if (above == magnitudes.end()) --best;
  if (above != magnitudes.end() && best > 0) {
    const double up = *above - wanted;
    const double down = wanted - *(above - 1);
    if (down < up || (down == up && best % 2 == 1)) --best;
  }
  return static_cast<uint16_t>(best | (std::signbit(value) ? 0x8000 : 0));
}

template <class T>
void check_all_of() {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const T value{static_cast<uint16_t>(bits)};
    const float wide = widen(value);
    const bool exact = same(wide, value_of(value));
    T back{0};
    narrow(wide, back);
    const bool returns = std::isnan(wide) ? std::isnan(widen(back)) : back.bits == value.bits;
    if (exact && returns) continue;
    CAPTURE(bits);
    CHECK(exact);
    CHECK(returns);
    return;
  }
}

template <class T>
void check_rounding_of(float value) {
  T made{0};
  narrow(value, made);
  if (made.bits == nearest<T>(value)) return;
  CAPTURE(value);
  CHECK(made.bits == nearest<T>(value));
}

template <class T>
void check_rounding() {
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    const float any = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(any)) check_rounding_of<T>(any);
    // Halfway between two neighbours, and next to it.
    const T value{static_cast<uint16_t>(random() % 0x7b00)};
    const float halfway = (widen(value) + widen(T{static_cast<uint16_t>(value.bits + 1)})) / 2;
    for (const float one : {halfway, std::nextafter(halfway, 0.0F), std::nextafter(halfway, 1e30F), -halfway}) {
      check_rounding_of<T>(one);
    }
  }
  for (const float edge : {0.0F, -0.0F, 65504.0F, 65519.99F, 65520.0F, 1e38F, std::numeric_limits<float>::max(),
                           std::numeric_limits<float>::infinity(), std::numeric_limits<float>::denorm_min()}) {
    check_rounding_of<T>(edge);
  }
}

}  // namespace

TEST_CASE("every 16-bit float is the float that its bits define, and comes back from it") {
  check_all_of<Half>();
  check_all_of<BFloat>();
}

TEST_CASE("floats become the nearest 16-bit float, ties to even, infinity past the largest") {
  check_rounding<Half>();
  check_rounding<BFloat>();
  Half half;
  narrow(std::numeric_limits<float>::signaling_NaN(), half);
  CHECK(std::isnan(widen(half)));
  BFloat upper;
  narrow(std::bit_cast<float>(0x7f800001U), upper);  // cut off it would be infinity
  CHECK(std::isnan(widen(upper)));
}
