// Highly composite numbers: each has more divisors than every smaller number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pliant::elasticity {

constexpr size_t kFirstPrimeCount = 15;
/// Every highly composite number below 2^63 is a product of these.
constexpr std::array<int64_t, kFirstPrimeCount> kFirstPrimes{2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47};

struct HighlyComposite {
  int64_t number = 1;
  std::array<uint8_t, kFirstPrimeCount> exponents{};  ///< of kFirstPrimes
};

constexpr size_t kHighlyCompositeCount = 167;  ///< below 2^63
constexpr size_t kDeepSpeedCount = 38;         ///< DeepSpeed knows these; the last is 720720

/// The largest of the first `known` that is at most limit >= 1.
const HighlyComposite& largest_highly_composite(int64_t limit, size_t known = kHighlyCompositeCount);

}  // namespace pliant::elasticity
