// Divisors by prime exponents, each with the set of micro-batch sizes that it leaves whole.
#include "sharing.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include "highly_composite.hpp"
#include "numbers.hpp"
#include "pliant/sdk/failure.hpp"

namespace pliant::elasticity {
namespace {

constexpr size_t kMostDeciding = 64;  // bits of a set
constexpr size_t kMostExponents = 64;
constexpr int64_t kPartsTried = 16;
constexpr int64_t kMostPartsTried = 64;  // where that gives the exact number

/// A divisor of a batch and the micro-batch sizes m for which it divides batch / m, as a set of bits.
struct Divisor {
  int64_t value;
  uint64_t micro_batches;
};

/// One prime of a batch: at exponent e of a divisor, allowed[e] are the micro-batch sizes that it can leave whole.
struct PrimeStep {
  int64_t prime = 2;
  std::array<uint64_t, kMostExponents + 1> allowed;  ///< set by allow() up to the highest exponent and one more
};

using MicroBatchSet = std::vector<const Factored*>;

/// `deciding`: at most 64.
void allow(PrimeStep& step, size_t position, const Factored& batch, const MicroBatchSet& deciding) {
  const size_t highest = batch.exponents[position];
  for (size_t e = 0; e <= highest + 1; ++e) step.allowed[e] = 0;
  for (size_t i = 0; i < deciding.size(); ++i) {
    step.allowed[highest - deciding[i]->exponents[position]] |= uint64_t{1} << i;
  }
  for (size_t e = highest; e-- > 0;) step.allowed[e] |= step.allowed[e + 1];
}

uint64_t all_of(const MicroBatchSet& deciding) {
  return ~uint64_t{0} >> (kMostDeciding - deciding.size());
}

int64_t divisor_count(const Factored& number, size_t primes) {
  int64_t count = 1;
  for (size_t p = 0; p < primes; ++p) count *= number.exponents[p] + 1;
  return count;
}

int64_t divisor_count_without(const Factored& number, const Factored& divisor, size_t primes) {
  int64_t count = 1;
  for (size_t p = 0; p < primes; ++p) count *= number.exponents[p] - divisor.exponents[p] + 1;
  return count;
}

/// Room for every divisor of the batch up to the limit, and one more to write to before it is known to be one.
size_t room_for(const Factored& batch, const SizeLimits& limits, size_t primes) {
  return static_cast<size_t>(std::min(divisor_count(batch, primes), std::max<int64_t>(limits.high, 1))) + 1;
}

/// Odd divisors up to `high` that leave a micro-batch size whole, in no order, to `found`. Their number.
size_t odd_divisors(const Factored& batch, const MicroBatchSet& deciding, const std::vector<int64_t>& primes,
                    int64_t high, Divisor* found) {
  found[0] = {1, all_of(deciding)};
  size_t size = 1;
  PrimeStep step;
  for (size_t p = primes.size(); p-- > 1;) {
    if (batch.exponents[p] == 0 || primes[p] > high) continue;
    allow(step, p, batch, deciding);
    const int64_t largest = high / primes[p];
    size_t from = 0;
    for (size_t e = 1; step.allowed[e] != 0 && from < size; ++e) {
      const size_t past = size;
      for (size_t i = from; i < past; ++i) {
        const uint64_t left = found[i].micro_batches & step.allowed[e];
        const bool kept = found[i].value <= largest && left != 0;
        const auto product = static_cast<uint64_t>(found[i].value) * static_cast<uint64_t>(primes[p]);  // may wrap
        found[size] = {static_cast<int64_t>(product), left};
        size += kept ? 1U : 0U;
      }
      from = past;
    }
  }
  return size;
}

/// How many of the divisors, times powers of 2, are within the limits and leave a micro-batch size whole.
int64_t count_with_twos(const Divisor* odd, size_t size, const PrimeStep& twos, const SizeLimits& limits) {
  int64_t count = 0;
  for (size_t e = 0; twos.allowed[e] != 0 && (limits.high >> e) > 0; ++e) {
    const int64_t high = limits.high >> e;
    const int64_t low = ((std::max<int64_t>(limits.low, 1) - 1) >> e) + 1;
    for (size_t i = 0; i < size; ++i) {
      const bool within = (odd[i].value >= low) & (odd[i].value <= high);
      const bool whole = (odd[i].micro_batches & twos.allowed[e]) != 0;
      count += static_cast<int64_t>(within & whole);
    }
  }
  return count;
}

/// Multiplies ascending divisors by powers of the next prime into `merged`, ascending. Each product comes from its own
/// predecessor, so both sources ascend.
class Merge {
 public:
  /// Begins with the divisor 1.
  Merge(size_t room, uint64_t micro_batches)
      : sorted_(std::make_unique_for_overwrite<Divisor[]>(room)),
        merged_(std::make_unique_for_overwrite<Divisor[]>(room)),
        exponents_(std::make_unique_for_overwrite<uint8_t[]>(room)) {
    sorted_[0] = {1, micro_batches};
  }

  void with(const PrimeStep& step, int64_t high) {
    constexpr int64_t kNone = INT64_MAX;
    size_t plain = 0;  // next of sorted_, exponent 0
    size_t grown = 0;  // next of merged_ to multiply
    size_t out = 0;
    const int64_t largest = high / step.prime;
    uint64_t left = 0;
    const auto next_product = [&] {
      for (; grown < out && merged_[grown].value <= largest; ++grown) {
        left = merged_[grown].micro_batches & step.allowed[exponents_[grown] + size_t{1}];
        if (left != 0) return merged_[grown].value * step.prime;
      }
      return kNone;
    };
    int64_t product = kNone;
    while (plain < size_ || product != kNone) {
      if (plain < size_ && sorted_[plain].value < product) {
        exponents_[out] = 0;
        merged_[out++] = sorted_[plain++];
        if (product == kNone) product = next_product();
      } else {
        exponents_[out] = static_cast<uint8_t>(exponents_[grown++] + 1);
        merged_[out++] = {product, left};
        product = next_product();
      }
    }
    size_ = out;
    sorted_.swap(merged_);
  }

  [[nodiscard]] std::vector<int64_t> at_least(int64_t low) const {
    std::vector<int64_t> values;
    values.reserve(size_);
    for (size_t i = 0; i < size_; ++i) {
      if (sorted_[i].value >= low) values.push_back(sorted_[i].value);
    }
    return values;
  }

 private:
  std::unique_ptr<Divisor[]> sorted_;
  std::unique_ptr<Divisor[]> merged_;
  std::unique_ptr<uint8_t[]> exponents_;  ///< of the prime, of merged_
  size_t size_ = 1;
};

std::vector<int64_t> ascending_divisors(const Factored& batch, const MicroBatchSet& deciding,
                                        const std::vector<int64_t>& primes, const SizeLimits& limits) {
  Merge divisors(room_for(batch, limits, primes.size()), all_of(deciding));
  PrimeStep step;
  for (size_t p = primes.size(); p-- > 0;) {
    if (batch.exponents[p] == 0 || primes[p] > limits.high) continue;
    step.prime = primes[p];
    allow(step, p, batch, deciding);
    divisors.with(step, limits.high);
  }
  return divisors.at_least(limits.low);
}

}  // namespace

MicroBatches::MicroBatches(std::vector<int64_t> sizes) : primes_(kFirstPrimes.begin(), kFirstPrimes.end()) {
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  sizes_.reserve(sizes.size());
  for (const int64_t size : sizes) {
    sizes_.push_back(factor(size));
    grow_common_multiple(sizes_.back());
    const bool covered =
        std::any_of(minimal_.begin(), minimal_.end(), [&](size_t smaller) { return size % sizes[smaller] == 0; });
    if (!covered) minimal_.push_back(sizes_.size() - 1);
  }
}

size_t MicroBatches::position_of(int64_t prime) {
  const auto position =
      static_cast<size_t>(std::distance(primes_.begin(), std::find(primes_.begin(), primes_.end(), prime)));
  if (position == primes_.size()) primes_.push_back(prime);
  return position;
}

Factored MicroBatches::factor(int64_t number) {
  constexpr int64_t kNextPrime = 53;
  Factored factored;
  factored.number = number;
  const auto raise = [&](int64_t prime, int by) {
    const size_t position = position_of(prime);
    if (position == kMostPrimes) return;  // 16 primes above 47: grow_common_multiple() refuses them
    factored.exponents[position] = static_cast<uint8_t>(factored.exponents[position] + by);
  };
  for (size_t p = 0; p < kFirstPrimeCount && kFirstPrimes[p] * kFirstPrimes[p] <= number; ++p) {
    for (; number % kFirstPrimes[p] == 0; number /= kFirstPrimes[p]) ++factored.exponents[p];
  }
  if (number >= kNextPrime * kNextPrime) {
    for (const PrimePower& power : factorize(number)) raise(power.prime, power.exponent);
  } else if (number > 1) {
    raise(number, 1);
  }
  return factored;
}

void MicroBatches::grow_common_multiple(const Factored& by) {
  bool fits = primes_.size() <= kMostPrimes;
  for (size_t p = 0; p < primes_.size() && fits; ++p) {
    for (; common_multiple_.exponents[p] < by.exponents[p] && fits; ++common_multiple_.exponents[p]) {
      fits = !__builtin_mul_overflow(common_multiple_.number, primes_[p], &common_multiple_.number);
    }
  }
  if (fits) return;
  throw sdk::Failure(
      PLIANT_OUT_OF_RANGE,
      "the least common multiple of micro_batch_sizes does not fit 63 bits; use sizes with common factors",
      "micro_batch_sizes");
}

MicroBatchSet MicroBatches::deciding(const Factored& batch) const {
  MicroBatchSet found;
  found.reserve(minimal_.size());
  for (const size_t i : minimal_) {
    if (batch.number % sizes_[i].number == 0) found.push_back(&sizes_[i]);
  }
  return found;
}

/// a / b for a >= 0, b >= 1. Short numbers divide several times as fast.
static int64_t quotient(int64_t a, int64_t b) {
  const bool short_enough = static_cast<uint64_t>(a | b) <= UINT32_MAX;
  return short_enough ? int64_t{static_cast<uint32_t>(a) / static_cast<uint32_t>(b)} : a / b;
}

SizeBound MicroBatches::bound(const Factored& batch, const SizeLimits& limits) const {
  if (limits.high < std::max<int64_t>(limits.low, 1)) return {0, true};
  const Factored* least = nullptr;
  size_t deciding = 0;
  for (const size_t i : minimal_) {
    if (batch.number % sizes_[i].number != 0) continue;
    if (deciding++ == 0) least = &sizes_[i];
  }
  // With one deciding size the others are the divisors of batch / size, else they are among those of the batch.
  const bool one = deciding == 1;
  const int64_t whole = one ? batch.number / least->number : batch.number;
  int64_t most = one ? divisor_count_without(batch, *least, primes_.size()) : divisor_count(batch, primes_.size());
  if (one && limits.low <= 1 && whole <= limits.high) return {most, true};
  // whole / part is too large a size, or it leaves less than a micro-batch. With one deciding size that is all that is
  // to be taken off.
  const int64_t smallest_part = one ? 1 : least->number;
  const bool few = whole / limits.high < kMostPartsTried;
  bool exact = false;
  for (int64_t part = 1; part <= (one && few ? kMostPartsTried : kPartsTried) && !exact; ++part) {
    const int64_t size = quotient(whole, part);
    exact = size <= limits.high && part >= smallest_part;
    if (!exact && size * part == whole) --most;
  }
  exact = exact && one && limits.low <= 1;
  return {std::min(most, limits.high - std::max<int64_t>(limits.low, 1) + 1), exact};
}

int64_t MicroBatches::count(const Factored& batch, const SizeLimits& limits) const {
  if (limits.high < std::max<int64_t>(limits.low, 1)) return 0;
  const MicroBatchSet all = deciding(batch);
  if (all.size() > kMostDeciding) return std::ssize(list(batch, limits));
  const auto odd = std::make_unique_for_overwrite<Divisor[]>(room_for(batch, limits, primes_.size()));
  const size_t size = odd_divisors(batch, all, primes_, limits.high, odd.get());
  PrimeStep twos;
  allow(twos, 0, batch, all);
  return count_with_twos(odd.get(), size, twos, limits);
}

std::vector<int64_t> MicroBatches::list(const Factored& batch, const SizeLimits& limits) const {
  if (limits.high < std::max<int64_t>(limits.low, 1)) return {};
  const MicroBatchSet all = deciding(batch);
  if (all.size() <= kMostDeciding) return ascending_divisors(batch, all, primes_, limits);
  std::vector<int64_t> joined;
  for (size_t from = 0; from < all.size(); from += kMostDeciding) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(from);
    const MicroBatchSet some(first, first + static_cast<std::ptrdiff_t>(std::min(kMostDeciding, all.size() - from)));
    const std::vector<int64_t> more = ascending_divisors(batch, some, primes_, limits);
    std::vector<int64_t> both;
    both.reserve(joined.size() + more.size());
    std::set_union(joined.begin(), joined.end(), more.begin(), more.end(), std::back_inserter(both));
    joined.swap(both);
  }
  return joined;
}

}  // namespace pliant::elasticity
