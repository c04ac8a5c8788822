// The table of highly composite numbers against a search for them.
#include <doctest/doctest.h>

#include "../plugins/elasticity/common/highly_composite.hpp"

using namespace pliant::elasticity;

namespace {

struct MostDivisors {
  int64_t number = 1;
  int64_t divisors = 1;
};

/// Tries `number` times powers of the primes from `at` on, none higher than the power before: a number with most
/// divisors below any bound has this shape.
void search(MostDivisors& best, int64_t limit, size_t at, int highest, int64_t number, int64_t divisors) {
  if (divisors > best.divisors || (divisors == best.divisors && number < best.number)) best = {number, divisors};
  if (at == kFirstPrimes.size()) return;
  for (int power = 1; power <= highest && number <= limit / kFirstPrimes[at]; ++power) {
    number *= kFirstPrimes[at];
    search(best, limit, at + 1, power, number, divisors * (power + 1));
  }
}

int64_t found_up_to(int64_t limit) {
  MostDivisors best;
  search(best, limit, 0, 62, 1, 1);
  return best.number;
}

}  // namespace

TEST_CASE("the search itself finds what counting divisors one by one finds") {
  int64_t most = 0;
  int64_t last = 1;
  for (int64_t n = 1; n <= 20000; ++n) {
    int64_t divisors = 0;
    for (int64_t d = 1; d * d <= n; ++d) {
      if (n % d == 0) divisors += d * d == n ? 1 : 2;
    }
    if (divisors > most) {
      most = divisors;
      last = n;
    }
    REQUIRE(found_up_to(n) == last);
    REQUIRE(largest_highly_composite(n).number == last);
  }
}

TEST_CASE("the table has every highly composite number below 2^63, 167 of them, and no other") {
  size_t entries = 0;
  for (int64_t limit = INT64_MAX; limit >= 1; ++entries) {
    const int64_t number = largest_highly_composite(limit).number;
    REQUIRE(number == found_up_to(limit));
    limit = number - 1;
  }
  CHECK(entries == kHighlyCompositeCount);
}

TEST_CASE("the exponents of an entry make its number") {
  for (int64_t limit = INT64_MAX; limit >= 1;) {
    const HighlyComposite& entry = largest_highly_composite(limit);
    int64_t product = 1;
    for (size_t p = 0; p < kFirstPrimes.size(); ++p) {
      for (int e = 0; e < entry.exponents[p]; ++e) product *= kFirstPrimes[p];
    }
    REQUIRE(product == entry.number);
    limit = entry.number - 1;
  }
}

TEST_CASE("DeepSpeed's table ends at 720720") {
  CHECK(largest_highly_composite(INT64_MAX, kDeepSpeedCount).number == 720720);
  CHECK(largest_highly_composite(1'000'000'000).number == 735134400);
}
