// Which sizes can share a batch: bound, count and list against trial of every size.
#include <doctest/doctest.h>

#include <algorithm>

#include "../plugins/elasticity/common/highly_composite.hpp"
#include "../plugins/elasticity/common/sharing.hpp"
#include "oracle.hpp"
#include "plan_cases.hpp"

using namespace pliant::elasticity;

namespace {

Factored times(Factored base, const HighlyComposite& by) {
  base.number *= by.number;
  for (size_t p = 0; p < kFirstPrimeCount; ++p) {
    base.exponents[p] = static_cast<uint8_t>(base.exponents[p] + by.exponents[p]);
  }
  return base;
}

void check(const MicroBatches& micro_batches, const std::vector<int64_t>& sizes, const Factored& batch,
           const SizeLimits& limits) {
  CAPTURE(batch.number);
  CAPTURE(limits.high);
  const std::vector<int64_t> expected = oracle::valid_sizes(batch.number, sizes, limits.low, limits.high);
  const SizeBound bound = micro_batches.bound(batch, limits);
  REQUIRE(micro_batches.list(batch, limits) == expected);
  REQUIRE(micro_batches.count(batch, limits) == std::ssize(expected));
  REQUIRE(bound.most >= std::ssize(expected));
  if (bound.exact) REQUIRE(bound.most == std::ssize(expected));
}

}  // namespace

TEST_CASE("bound, count and list agree with trial of every size") {
  cases::Random random(1);
  for (int i = 0; i < 3000; ++i) {
    const oracle::Config config = cases::deepspeed(random);
    const MicroBatches micro_batches(config.micro_batches);
    const auto& sizes = micro_batches.sizes();
    const Factored& base = sizes[static_cast<size_t>(random.in(0, std::ssize(sizes) - 1))];
    const Factored batch = times(base, largest_highly_composite(random.in(1, 700)));
    check(micro_batches, config.micro_batches, batch, {random.in(-2, 40), random.in(0, 60'000)});
  }
}

TEST_CASE("more than 64 micro-batch sizes may decide, none of which divides another") {
  const std::vector<int64_t> primes{2, 3, 5, 7, 11, 13, 17, 19, 23};
  std::vector<int64_t> sizes;
  for (size_t a = 0; a < primes.size(); ++a) {
    for (size_t b = a + 1; b < primes.size(); ++b) {
      for (size_t c = b + 1; c < primes.size(); ++c) sizes.push_back(primes[a] * primes[b] * primes[c]);
    }
  }
  REQUIRE(sizes.size() == 84);
  const MicroBatches micro_batches(sizes);
  check(micro_batches, sizes, micro_batches.common_multiple(), {1, 100'000});
  check(micro_batches, sizes, times(micro_batches.common_multiple(), largest_highly_composite(12)), {7, 50'000});
}

TEST_CASE("a common multiple of 15 primes beyond the first 15 is told from one that does not fit") {
  CHECK(MicroBatches({53 * 59, 61 * 67, 71 * 73, 79 * 83}).common_multiple().number ==
        int64_t{53} * 59 * 61 * 67 * 71 * 73 * 79 * 83);
  std::vector<int64_t> primes{53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131};
  CHECK_THROWS_WITH(MicroBatches{primes}, doctest::Contains("does not fit 63 bits"));
}
