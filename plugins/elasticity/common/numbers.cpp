// Factorisation by trial division for small primes, then Miller-Rabin and Pollard's rho.
#include "numbers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

namespace pliant::elasticity {
namespace {

__extension__ typedef unsigned __int128 Wide;

constexpr int64_t kTrialLimit = 1000;
constexpr int kDoubleBits = 53;

/// Miller-Rabin with these bases decides every 64-bit number.
constexpr std::array<uint64_t, 12> kWitnesses{2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};

uint64_t multiply_modulo(uint64_t a, uint64_t b, uint64_t n) {
  return static_cast<uint64_t>(Wide{a} * b % n);
}

uint64_t power_modulo(uint64_t base, uint64_t exponent, uint64_t n) {
  uint64_t result = 1;
  for (base %= n; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = multiply_modulo(result, base, n);
    base = multiply_modulo(base, base, n);
  }
  return result;
}

/// n odd, > kTrialLimit.
bool is_prime(uint64_t n) {
  uint64_t odd = n - 1;
  int twos = 0;
  for (; (odd & 1) == 0; odd >>= 1) ++twos;
  for (const uint64_t base : kWitnesses) {
    uint64_t x = power_modulo(base, odd, n);
    if (x == 1 || x == n - 1) continue;
    bool witness = true;
    for (int i = 1; i < twos && witness; ++i) {
      x = multiply_modulo(x, x, n);
      witness = x != n - 1;
    }
    if (witness) return false;
  }
  return true;
}

/// A proper factor of the odd composite n.
uint64_t proper_factor(uint64_t n) {
  for (uint64_t increment = 1;; ++increment) {
    const auto next = [n, increment](uint64_t x) { return static_cast<uint64_t>((Wide{x} * x + increment) % n); };
    uint64_t slow = 2;
    uint64_t fast = 2;
    uint64_t factor = 1;
    while (factor == 1) {
      slow = next(slow);
      fast = next(next(fast));
      factor = std::gcd(slow > fast ? slow - fast : fast - slow, n);
    }
    if (factor != n) return factor;
  }
}

void collect_primes(uint64_t n, std::vector<int64_t>& primes) {
  if (n == 1) return;
  if (is_prime(n)) {
    primes.push_back(static_cast<int64_t>(n));
    return;
  }
  const uint64_t factor = proper_factor(n);
  collect_primes(factor, primes);
  collect_primes(n / factor, primes);
}

}  // namespace

std::vector<PrimePower> factorize(int64_t n) {
  std::vector<int64_t> primes;
  for (int64_t p = 2; p <= kTrialLimit && p <= n / p; p += p == 2 ? 1 : 2) {
    for (; n % p == 0; n /= p) primes.push_back(p);
  }
  if (n > kTrialLimit * kTrialLimit) {
    collect_primes(static_cast<uint64_t>(n), primes);
  } else if (n > 1) {
    primes.push_back(n);
  }
  std::sort(primes.begin(), primes.end());
  std::vector<PrimePower> powers;
  for (const int64_t p : primes) {
    if (powers.empty() || powers.back().prime != p) powers.push_back({p, 0});
    ++powers.back().exponent;
  }
  return powers;
}

std::optional<int64_t> checked_product(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

int64_t greatest_common_divisor(const std::vector<int64_t>& values) {
  int64_t divisor = 0;
  for (const int64_t value : values) divisor = std::gcd(divisor, value);
  return divisor;
}

double true_quotient(int64_t a, int64_t b) {
  constexpr int64_t kExact = int64_t{1} << kDoubleBits;
  if (a <= kExact && b <= kExact) return static_cast<double>(a) / static_cast<double>(b);
  const int shift = 63 + std::countl_zero(static_cast<uint64_t>(a));  // leaves at least 64 bits of quotient
  const Wide scaled = Wide{static_cast<uint64_t>(a)} << shift;
  Wide quotient = scaled / static_cast<uint64_t>(b);
  bool inexact = scaled % static_cast<uint64_t>(b) != 0;
  int exponent = -shift;
  bool half = false;
  while ((quotient >> kDoubleBits) != 0) {
    inexact = inexact || half;
    half = (quotient & 1) != 0;
    quotient >>= 1;
    ++exponent;
  }
  if (half && (inexact || (quotient & 1) != 0)) ++quotient;
  return std::ldexp(static_cast<double>(static_cast<uint64_t>(quotient)), exponent);
}

std::optional<int64_t> rounded_quotient(int64_t a, int64_t b) {
  return truncated(true_quotient(a, b));
}

double floor_quotient(double a, double b) {
  const double exact = (a - std::fmod(a, b)) / b;
  const double below = std::floor(exact);
  return exact - below > 0.5 ? below + 1.0 : below;
}

std::optional<int64_t> truncated(double value) {
  constexpr double kTooLarge = 9223372036854775808.0;
  if (!(value < kTooLarge)) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace pliant::elasticity
