// Shares of a global batch.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "pliant/error.hpp"
#include "pliant/plan.hpp"

using pliant::RowRange;
using pliant::share_of;

TEST_CASE("shares are contiguous, complete and differ by at most one granule") {
  CHECK(rc::check([] {
    const auto rows = *rc::gen::inRange<int64_t>(0, 5000);
    const auto granule = *rc::gen::inRange<int64_t>(1, 40);
    const auto world_size = *rc::gen::inRange<int64_t>(1, 200);
    int64_t next = 0;
    int64_t before = rows;
    int64_t least = rows;
    int64_t most = 0;  // in granules, the short one at the very end counted whole
    for (int64_t rank = 0; rank < world_size; ++rank) {
      const RowRange share = share_of(rows, granule, world_size, rank);
      RC_ASSERT(share.first == next);
      RC_ASSERT(share.count >= 0);
      RC_ASSERT(share.first % granule == 0 || share.first == rows);
      RC_ASSERT(share.count % granule == 0 || share.first + share.count == rows);
      RC_ASSERT(share.count <= before);
      next += share.count;
      before = share.count;
      const int64_t granules = (share.count + granule - 1) / granule;
      least = std::min(least, granules);
      most = std::max(most, granules);
    }
    RC_ASSERT(next == rows);
    RC_ASSERT(most - least <= 1);
  }));
}

TEST_CASE("shares of a batch near the end of 63 bits do not overflow") {
  const RowRange share = share_of(INT64_MAX, 7, 3, 2);
  CHECK(share.first + share.count == INT64_MAX);
}

TEST_CASE("a short batch leaves the last ranks without rows") {
  CHECK(share_of(3, 2, 4, 0) == RowRange{0, 2});
  CHECK(share_of(3, 2, 4, 1) == RowRange{2, 1});
  CHECK(share_of(3, 2, 4, 2) == RowRange{3, 0});
  CHECK(share_of(3, 2, 4, 3) == RowRange{3, 0});
}

TEST_CASE("a share is cut into micro-batches in order, the last one possibly smaller") {
  CHECK(rc::check([] {
    const RowRange share{*rc::gen::inRange<int64_t>(0, 1000), *rc::gen::inRange<int64_t>(0, 1000)};
    const auto size = *rc::gen::inRange<int64_t>(1, 50);
    int64_t next = share.first;
    for (const RowRange& micro : pliant::micro_batches(share, size)) {
      RC_ASSERT(micro.first == next);
      next += micro.count;
      RC_ASSERT(micro.count == size || next == share.first + share.count);
      RC_ASSERT(micro.count >= 1);
    }
    RC_ASSERT(next == share.first + share.count);
  }));
}

TEST_CASE("arguments that have no share are refused") {
  CHECK_THROWS_AS(static_cast<void>(share_of(-1, 1, 1, 0)), pliant::Error);
  CHECK_THROWS_AS(static_cast<void>(share_of(1, 0, 1, 0)), pliant::Error);
  CHECK_THROWS_AS(static_cast<void>(share_of(1, 1, 0, 0)), pliant::Error);
  CHECK_THROWS_AS(static_cast<void>(share_of(1, 1, 2, 2)), pliant::Error);
  CHECK_THROWS_AS(static_cast<void>(share_of(1, 1, 2, -1)), pliant::Error);
  CHECK_THROWS_AS(static_cast<void>(pliant::micro_batches({0, 4}, 0)), pliant::Error);
}
