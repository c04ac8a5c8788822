// Whole-number arithmetic of the elasticity policies: factors, checked products, exact quotients.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace pliant::elasticity {

struct PrimePower {
  int64_t prime = 0;
  int exponent = 0;
};

/// Prime powers of n >= 1, ascending. Milliseconds at worst, for any 63-bit n.
std::vector<PrimePower> factorize(int64_t n);

/// a * b for a, b >= 0, or nullopt past 63 bits.
std::optional<int64_t> checked_product(int64_t a, int64_t b);

/// Greatest common divisor of values >= 1; 0 for none.
int64_t greatest_common_divisor(const std::vector<int64_t>& values);

/// a / b for a >= 0, b >= 1, rounded once to the nearest double (ties to even), whatever the size of a and b.
double true_quotient(int64_t a, int64_t b);

/// true_quotient cut to an integer. Not the same as a / b: above 2^53 the rounding can reach the next integer.
/// nullopt past 63 bits.
std::optional<int64_t> rounded_quotient(int64_t a, int64_t b);

/// floor(a / b) of positive doubles, corrected by the remainder, so that an exact multiple never falls one short.
double floor_quotient(double a, double b);

/// value >= 0 cut to an integer, or nullopt past 63 bits.
std::optional<int64_t> truncated(double value);

}  // namespace pliant::elasticity
