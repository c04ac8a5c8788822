// The oracle itself, by cases worked out by hand.
#include "oracle.hpp"

#include <doctest/doctest.h>

TEST_CASE("the oracle knows highly composite numbers") {
  CHECK(oracle::highly_composite(1) == 1);
  CHECK(oracle::highly_composite(999) == 840);
  CHECK(oracle::highly_composite(1000) == 840);
  CHECK(oracle::highly_composite(10079) == 7560);
}

TEST_CASE("the oracle finds the worked example of 2000 rows") {
  const auto plan = oracle::v01({.cap = 2000, .micro_batches = {2, 4, 6}, .low = 1, .high = 1500});
  CHECK(plan->batch == 1680);
  CHECK(plan->sizes.size() == 32);
  CHECK(plan->sizes.back() == 840);
}
