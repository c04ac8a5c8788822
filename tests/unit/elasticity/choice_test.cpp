// The search of `exact`: against brute force over every batch, and where brute force is too slow.
#include "../plugins/elasticity/exact/choice.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "plan_cases.hpp"

using namespace pliant::elasticity;

namespace {

std::vector<Period> any_periods(cases::Random& random, int64_t longest) {
  std::vector<Period> periods;
  const int64_t at_once = random.one_in(2) ? 1 : random.in(1, 30);
  if (random.one_in(2)) {
    const int64_t step = random.in(1, 8);
    const int64_t low = step * random.in(1, 40);
    const int64_t high = low + step * random.in(0, longest);
    for (int64_t size = low; size <= high; size += step) periods.push_back({size * at_once, 1});
  } else {
    for (int64_t i = random.in(1, 6); i > 0; --i) periods.push_back({random.in(1, longest) * at_once, random.in(1, 9)});
  }
  return periods;
}

/// Of all batches the largest with the least loss.
int64_t brute_force(int64_t fewest, int64_t most, const std::vector<Period>& sizes) {
  Choice best{most, loss_of(most, sizes)};
  for (int64_t granules = most - 1; granules >= fewest; --granules) {
    const Loss loss = loss_of(granules, sizes);
    if (clearly_less(loss, best.loss, sizes)) best = {granules, loss};
  }
  return best.granules;
}

std::vector<Period> sizes_up_to(int64_t last) {
  std::vector<Period> sizes;
  for (int64_t size = 1; size <= last; ++size) sizes.push_back({size, 1});
  return sizes;
}

}  // namespace

TEST_CASE("the sieve finds the batch that a look at every batch finds") {
  cases::Random random(2);
  for (int i = 0; i < 3000; ++i) {
    const int64_t most = random.in(1, i % 10 == 0 ? 20'000 : 600);
    const int64_t fewest = random.one_in(2) ? 1 : random.in(1, most);
    const std::vector<Period> sizes = any_periods(random, 80);
    const Choice found = most_efficient(fewest, most, sizes);
    INFO("most " << most << ", fewest " << fewest << ", " << sizes.size() << " sizes");
    REQUIRE(found.granules == brute_force(fewest, most, sizes));
    REQUIRE((found.loss == loss_of(found.granules, sizes)));
  }
}

TEST_CASE("a batch that every size divides is found as far up as there is one") {
  const std::vector<Period> sizes = sizes_up_to(16);  // of which 720720 is the least common multiple
  for (const int64_t most : {int64_t{1} << 40, (int64_t{1} << 62) - 1}) {
    const Choice found = most_efficient(16, most, sizes);
    if (found.loss == 0) CHECK(found.granules % 720720 == 0);
    CHECK(found.granules > most - kMostBatches);
  }
  CHECK(most_efficient(16, 800'000, sizes).granules == 720720);
}

TEST_CASE("beyond the window the best of the largest batches is taken") {
  cases::Random random(5);
  const std::vector<Period> sizes = sizes_up_to(3000);
  for (const int64_t most : {int64_t{1'000'000'007}, int64_t{1} << 40, (int64_t{1} << 62) - 1}) {
    const Choice found = most_efficient(3000, most, sizes);
    CHECK(found.granules > most - kMostBatches);
    for (int i = 0; i < 300; ++i) {
      const int64_t granules = most - random.in(0, kMostBatches - 1);
      REQUIRE_FALSE(clearly_less(loss_of(granules, sizes), found.loss, sizes));
    }
  }
}

TEST_CASE("periods that do not fit the window, and the longest there are, leave the largest batch") {
  constexpr int64_t kHuge = int64_t{1} << 62;
  CHECK(most_efficient(1, kHuge, {{kHuge - 1, 1}, {kHuge, 1}}).granules == kHuge - 1);
  CHECK(most_efficient(kHuge, kHuge, {{3, 1}}).granules == kHuge);
}
