// Costs of rows: exact where they fit, the same ratios where they do not.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <numeric>

#include "pliant/balancer.hpp"
#include "pliant/error.hpp"

namespace pliant {
namespace {

std::vector<int64_t> costs(const std::vector<int64_t>& lengths, const std::vector<uint64_t>& offsets, CostRates rates) {
  return row_costs(lengths, offsets, rates);
}

TEST_CASE("a row costs its tokens and the squares of its lengths") {
  CHECK(costs({3, 4, 5}, {0, 2, 3, 3}, {1, 0}) == std::vector<int64_t>{7, 5, 0});
  CHECK(costs({3, 4, 5}, {0, 2, 3, 3}, {10, 1}) == std::vector<int64_t>{95, 75, 0});
  CHECK(costs({3, 4, 5}, {1, 3}, {0, 2}) == std::vector<int64_t>{82});
}

TEST_CASE("a batch costs the same as its lengths, and a piece attends to itself only") {
  const Dataset dataset{.lengths = {3, 4, 5}, .loss_tokens = {}};
  Batch batch;
  batch.offsets = {0, 2, 3};
  batch.ids = {2, 0, 1};
  batch.size.rows = 2;
  CHECK(row_costs(batch, dataset, {10, 1}) == costs({5, 3, 4}, {0, 2, 3}, {10, 1}));
  batch.pieces = {{0, 2, false}, {0, 3, true}, {1, 3, true}};
  CHECK(row_costs(batch, dataset, {10, 1}) == costs({2, 3, 3}, {0, 2, 3}, {10, 1}));
}

TEST_CASE("a batch that does not add up, or is of another data set, has no costs") {
  const Dataset dataset{.lengths = {3, 4, 5}, .loss_tokens = {}};
  Batch good;
  good.offsets = {0, 2, 3};
  good.ids = {2, 0, 1};
  good.size.rows = 2;
  const auto refused = [&](auto&& change) {
    Batch batch = good;
    change(batch);
    CHECK_THROWS_AS(static_cast<void>(row_costs(batch, dataset, {1, 0})), Error);
  };
  refused([](Batch& batch) { batch.size.rows = 3; });
  refused([](Batch& batch) { batch.size.rows = -1; });
  refused([](Batch& batch) { batch.offsets.clear(); });
  refused([](Batch& batch) { batch.offsets = {0, 2, 4}; });
  refused([](Batch& batch) { batch.ids[1] = -1; });
  refused([](Batch& batch) { batch.ids[1] = 3; });
  refused([](Batch& batch) { batch.pieces = {{0, 2, true}}; });
}

TEST_CASE("costs beyond 62 bits keep their ratios and their sum fits") {
  // The longest lengths and budgets: 512 sequences of 2^31 tokens in a row of 2^40.
  std::vector<int64_t> lengths(512, int64_t{1} << 31);
  lengths.insert(lengths.end(), 256, int64_t{1} << 31);
  const auto made = costs(lengths, {0, 512, 768}, {int64_t{1} << 40, int64_t{1} << 40});
  CHECK(made[0] > int64_t{1} << 60);
  CHECK(made[0] / 2 - made[1] <= 1);
  CHECK(made[0] / 2 - made[1] >= -1);
}

TEST_CASE("no lengths overflow, they saturate") {
  const bool held = rc::check([] {
    const auto lengths = *rc::gen::container<std::vector<int64_t>>(
        rc::gen::oneOf(rc::gen::just<int64_t>(INT64_MAX), rc::gen::inRange<int64_t>(0, INT64_MAX),
                       rc::gen::inRange<int64_t>(0, 10000)));
    std::vector<uint64_t> offsets(lengths.size() + 1);
    std::iota(offsets.begin(), offsets.end(), uint64_t{0});
    const auto highest = int64_t{1} << 40;
    const auto made = costs(lengths, offsets, {*rc::gen::inRange<int64_t>(1, highest + 1), highest});
    double sum = 0;
    for (size_t i = 0; i < made.size(); ++i) {
      RC_ASSERT(made[i] >= 0);
      sum += static_cast<double>(made[i]);
      for (size_t j = 0; j < i; ++j) {
        if (lengths[i] >= lengths[j]) RC_ASSERT(made[i] >= made[j]);
      }
    }
    RC_ASSERT(sum < 0x1p62);
  });
  CHECK(held);
}

TEST_CASE("many rows at the bound have a sum that fits") {
  const std::vector<int64_t> lengths(100000, INT64_MAX);
  std::vector<uint64_t> offsets(lengths.size() + 1);
  std::iota(offsets.begin(), offsets.end(), uint64_t{0});
  const auto made = costs(lengths, offsets, {1, int64_t{1} << 40});
  CHECK(std::accumulate(made.begin(), made.end(), 0.0) < 0x1p62);
  CHECK(made.front() > 0);
}

TEST_CASE("negative rates, two zeros, negative lengths and offsets that do not fit are refused") {
  const auto refused = [](const std::vector<int64_t>& lengths, const std::vector<uint64_t>& offsets, CostRates rates) {
    try {
      (void)costs(lengths, offsets, rates);
    } catch (const Error& error) {
      return error.status() == Status::kInvalidArgument;
    }
    return false;
  };
  CHECK(refused({1}, {0, 1}, {-1, 1}));
  CHECK(refused({1}, {0, 1}, {1, -1}));
  CHECK(refused({1}, {0, 1}, {0, 0}));
  CHECK(refused({1}, {0, 1}, {(int64_t{1} << 40) + 1, 1}));
  CHECK(refused({-1}, {0, 1}, {1, 0}));
  CHECK(refused({1}, {0, 2}, {1, 0}));
  CHECK(refused({1}, {}, {1, 0}));
  CHECK(refused({1, 1}, {0, 2, 1}, {1, 0}));
  CHECK_FALSE(refused({}, {0}, {1, 0}));
}

}  // namespace
}  // namespace pliant
