// Factors, divisors and quotients against brute force and against known hard numbers.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../plugins/elasticity/common/numbers.hpp"

namespace pe = pliant::elasticity;

namespace {

int64_t product(const std::vector<pe::PrimePower>& powers) {
  int64_t n = 1;
  for (const pe::PrimePower& power : powers) {
    for (int i = 0; i < power.exponent; ++i) n *= power.prime;
  }
  return n;
}

}  // namespace

TEST_CASE("hard numbers are factorised") {
  // Primes, squares of primes, products of two large primes, the largest 63-bit number.
  for (const int64_t n :
       {int64_t{1}, int64_t{2}, int64_t{1009} * 1009, int64_t{1000003}, int64_t{2147483647} * 2147483629,
        int64_t{3037000493} * 3037000493, int64_t{9223372036854775783}, INT64_MAX}) {
    CAPTURE(n);
    const std::vector<pe::PrimePower> powers = pe::factorize(n);
    CHECK(product(powers) == n);
    CHECK(std::is_sorted(powers.begin(), powers.end(), [](auto a, auto b) { return a.prime < b.prime; }));
  }
  CHECK(pe::factorize(9223372036854775783).size() == 1);
  CHECK(pe::factorize(int64_t{3037000493} * 3037000493).front().exponent == 2);
}

TEST_CASE("products past 63 bits are refused") {
  CHECK(*pe::checked_product(INT64_MAX, 1) == INT64_MAX);
  CHECK_FALSE(pe::checked_product(INT64_MAX, 2).has_value());
  CHECK(pe::greatest_common_divisor({8, 12, 20}) == 4);
}

TEST_CASE("a quotient is rounded once, to the nearest double") {
  CHECK(pe::true_quotient(7, 3) == 7.0 / 3.0);
  CHECK(pe::true_quotient(0, INT64_MAX) == 0.0);
  CHECK(pe::true_quotient(INT64_MAX, 1) == 9223372036854775808.0);
  CHECK(pe::true_quotient(8, int64_t{1} << 60) == std::ldexp(8.0, -60));
  // One step off the tie between two doubles either way: dividing rounded operands would lose the step.
  CHECK(pe::true_quotient((int64_t{1} << 54) + 2, 1) == std::ldexp(1.0, 54));
  CHECK(pe::true_quotient((int64_t{1} << 54) + 3, 1) == std::ldexp(1.0, 54) + 4.0);
  CHECK(pe::true_quotient((int64_t{1} << 54) + 1, 1) == std::ldexp(1.0, 54));
  CHECK_FALSE(pe::rounded_quotient(INT64_MAX, 1).has_value());
  CHECK(*pe::rounded_quotient(int64_t{3} * ((int64_t{1} << 52) + 1) - 1, 3) == (int64_t{1} << 52) + 1);
}

TEST_CASE("a quotient of wide integers lies between the exact neighbours") {
  CHECK(rc::check([] {
    const auto a = *rc::gen::inRange<int64_t>(0, INT64_MAX);
    const auto b = *rc::gen::inRange<int64_t>(1, INT64_MAX);
    const long double exact = static_cast<long double>(a) / static_cast<long double>(b);
    const double rounded = pe::true_quotient(a, b);
    RC_ASSERT(std::nextafter(rounded, -1.0) < exact);
    RC_ASSERT(std::nextafter(rounded, INFINITY) > exact);
  }));
}

TEST_CASE("a floor quotient of an exact multiple never falls one short") {
  CHECK(rc::check([] {
    const auto factor = *rc::gen::inRange<int64_t>(0, 1 << 20);
    const auto step = *rc::gen::inRange<int64_t>(1, 1 << 20);
    RC_ASSERT(pe::floor_quotient(static_cast<double>(factor * step), static_cast<double>(step)) ==
              static_cast<double>(factor));
  }));
}
