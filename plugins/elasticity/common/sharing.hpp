// Which sizes can share a batch evenly: those by which the batch, cut into micro-batches of one of some sizes, divides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pliant::elasticity {

/// Distinct primes of a 63-bit common multiple and of a highly composite number: at most 15 each.
constexpr size_t kMostPrimes = 30;

/// A number with its prime exponents, over the primes of the MicroBatches that it belongs to.
struct Factored {
  int64_t number = 1;
  std::array<uint8_t, kMostPrimes> exponents{};
};

/// Sizes counted: from low to high.
struct SizeLimits {
  int64_t low = 1;
  int64_t high = 0;
};

/// At most `most` sizes; `exact`: just as many.
struct SizeBound {
  int64_t most = 0;
  bool exact = false;
};

/// Micro-batch sizes, factored once. A size d can share a batch when some micro-batch size divides batch / d.
class MicroBatches {
 public:
  /// `sizes` >= 1, not empty, in any order. Throws Failure(PLIANT_OUT_OF_RANGE) when their least common multiple does
  /// not fit 63 bits.
  explicit MicroBatches(std::vector<int64_t> sizes);

  /// Ascending, each once.
  [[nodiscard]] const std::vector<Factored>& sizes() const { return sizes_; }
  [[nodiscard]] const Factored& common_multiple() const { return common_multiple_; }

  /// How many sizes can share `batch`, a multiple of one of sizes(), at most. O(sizes + primes).
  [[nodiscard]] SizeBound bound(const Factored& batch, const SizeLimits& limits) const;
  /// How many can. O(divisors of batch up to high).
  [[nodiscard]] int64_t count(const Factored& batch, const SizeLimits& limits) const;
  /// Which can, ascending. As count().
  [[nodiscard]] std::vector<int64_t> list(const Factored& batch, const SizeLimits& limits) const;

 private:
  [[nodiscard]] std::vector<const Factored*> deciding(const Factored& batch) const;
  [[nodiscard]] Factored factor(int64_t number);
  void grow_common_multiple(const Factored& by);
  size_t position_of(int64_t prime);

  std::vector<int64_t> primes_;  ///< kFirstPrimes, then others of sizes_
  std::vector<Factored> sizes_;
  std::vector<size_t> minimal_;  ///< of sizes_: those that are no multiple of another. The others add no size.
  Factored common_multiple_;
};

}  // namespace pliant::elasticity
