// Waiting: rank-time lost to the slowest rank, once a step and at every micro-batch.
#include <doctest/doctest.h>

#include "pliant/balancer.hpp"
#include "pliant/error.hpp"

namespace pliant {
namespace {

TEST_CASE("ranks wait for the largest load, or for the costliest block each time") {
  const std::vector<int64_t> costs{4, 1, 1, 2};
  const Assignment runs = share_out(4, {.world_size = 2});
  const Waiting waits = waiting(costs, runs);
  CHECK(waits.work == 8.0);
  CHECK(waits.per_step == 10.0);         // 5 against 3
  CHECK(waits.per_micro_batch == 12.0);  // 4 against 1, then 1 against 2
  CHECK(waits.lost_per_step() == doctest::Approx(0.2));
  CHECK(waits.lost_per_micro_batch() == doctest::Approx(1.0 / 3));
}

TEST_CASE("a rank without a block waits, too") {
  const std::vector<int64_t> costs{3, 3, 3};
  const Waiting waits = waiting(costs, share_out(3, {.world_size = 2}));
  CHECK(waits.per_step == 12.0);
  CHECK(waits.per_micro_batch == 12.0);
  CHECK(waiting(costs, share_out(3, {.world_size = 6})).lost_per_step() == doctest::Approx(0.5));
}

TEST_CASE("what costs nothing loses nothing") {
  CHECK(Waiting{}.lost_per_step() == 0.0);
  CHECK(waiting({}, share_out(0, {.world_size = 3})).lost_per_micro_batch() == 0.0);
}

TEST_CASE("the waiting of several batches adds up, each with its weight") {
  Waiting sum;
  sum += waiting(std::vector<int64_t>{2, 1}, share_out(2, {.world_size = 2}));
  sum += waiting(std::vector<int64_t>{30, 30}, share_out(2, {.world_size = 2}));
  CHECK(sum.work == 63.0);
  CHECK(sum.per_step == 64.0);
  CHECK(sum.lost_per_step() == doctest::Approx(1.0 / 64));
}

TEST_CASE("an assignment of rows without costs is refused") {
  const std::vector<int64_t> costs{1, 2};
  for (const RowRange rows : {RowRange{-5, 5}, RowRange{0, 3}, RowRange{2, 1}, RowRange{INT64_MAX, INT64_MAX}}) {
    CHECK_THROWS_AS(static_cast<void>(waiting(costs, {{rows}, {0, 1}})), Error);
  }
}

TEST_CASE("micro-batches of several rows cost what their rows cost") {
  const std::vector<int64_t> costs{1, 2, 3, 4, 5};
  const Waiting waits = waiting(costs, share_out(5, {.world_size = 2, .micro_batch = 2}));
  CHECK(waits.work == 15.0);
  CHECK(waits.per_step == 18.0);         // rows 0 to 2 against 3 and 4
  CHECK(waits.per_micro_batch == 24.0);  // 1 + 2 against 4 + 5, then 3 against nothing
}

}  // namespace
}  // namespace pliant
