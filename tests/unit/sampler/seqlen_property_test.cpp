// Sampler `seqlen` against a transcription of the reference's rule that tries every size of every pack.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <optional>

#include "sampler_plugin.hpp"

namespace seqlen_property_test {

using namespace pliant;
using namespace pliant::test;

namespace {

using Rows = std::vector<std::vector<int64_t>>;

struct Case {
  Asked asked;
  int64_t max_tokens = 0;
  int64_t min_batch_size = 0;
  int64_t max_batch_size = 0;
  bool same_size = false;
  std::string order;
  bool strict = false;

  [[nodiscard]] OptionMap options() const {
    return {{"max_tokens", max_tokens},
            {"min_batch_size", min_batch_size},
            {"max_batch_size", max_batch_size},
            {"required_microbatches_of_same_size", same_size},
            {"sequence_picking_order", order},
            {"over_long", "drop"},
            {"strict", strict}};
  }
  [[nodiscard]] std::vector<int64_t> chosen() const {
    if (asked.has_ids) return asked.ids;
    std::vector<int64_t> all(asked.lengths.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    return all;
  }
  [[nodiscard]] int64_t length(int64_t id) const { return asked.lengths[static_cast<size_t>(id)]; }
};

Case random_case(bool strict) {
  const auto below = [](int64_t bound) { return *rc::gen::inRange<int64_t>(0, bound); };
  Case made;
  made.max_tokens = below(80);
  made.asked.lengths = *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange<int32_t>(0, 40));
  made.asked.rows_per_batch = 1 + below(5);
  made.asked.seed = *rc::gen::arbitrary<uint64_t>();
  made.asked.epoch = below(3);
  made.min_batch_size = below(4);
  made.max_batch_size = below(2) == 0 ? 0 : made.min_batch_size + below(4);
  made.same_size = below(2) == 1;
  made.order = std::vector<std::string>{"dataloader", "seqlen", "random"}[static_cast<size_t>(below(strict ? 3 : 2))];
  made.strict = strict;
  if (!made.asked.lengths.empty() && below(3) == 0) {
    made.asked.has_ids = true;
    made.asked.ids = *rc::gen::container<std::vector<int64_t>>(
        rc::gen::inRange<int64_t>(0, static_cast<int64_t>(made.asked.lengths.size())));
  }
  return made;
}

/// The rule, word by word: from position b, of all k with b + k*M < N whose M interleaved columns of k sequences keep
/// to the three limits, take the largest. nullopt: fewer rows than one batch.
std::optional<Rows> oracle(const Case& asked) {
  std::vector<int64_t> order = asked.chosen();
  if (asked.order == "seqlen") {
    std::sort(order.begin(), order.end(),
              [&](int64_t a, int64_t b) { return std::pair(asked.length(a), a) < std::pair(asked.length(b), b); });
  }
  order.erase(
      std::remove_if(order.begin(), order.end(), [&](int64_t id) { return asked.length(id) > asked.max_tokens; }),
      order.end());
  const auto columns = static_cast<size_t>(asked.same_size ? asked.asked.rows_per_batch : 1);
  Rows rows;
  for (size_t begin = 0;;) {
    size_t best = 0;
    for (size_t k = 1; begin + k * columns < order.size(); ++k) {
      bool fits = static_cast<int64_t>(k) >= asked.min_batch_size &&
                  (asked.max_batch_size == 0 || static_cast<int64_t>(k) <= asked.max_batch_size);
      for (size_t column = 0; column < columns; ++column) {
        int64_t sum = 0;
        for (size_t i = 0; i < k; ++i) sum += asked.length(order[begin + i * columns + column]);
        fits = fits && sum <= asked.max_tokens;
      }
      if (fits) best = k;
    }
    if (best == 0) break;
    for (size_t column = 0; column < columns; ++column) {
      rows.emplace_back();
      for (size_t i = 0; i < best; ++i) rows.back().push_back(order[begin + i * columns + column]);
    }
    begin += best * columns;
  }
  const auto batch = static_cast<size_t>(asked.asked.rows_per_batch);
  rows.resize(rows.size() - rows.size() % batch);
  if (rows.empty()) return std::nullopt;
  return rows;
}

/// Every sequence asked for is in a row or dropped, as often as it was asked for.
void check_cover(const Case& asked, const Planned& plan) {
  std::map<int64_t, int64_t> balance;
  for (const int64_t id : asked.chosen()) ++balance[id];
  for (const auto& row : plan.rows) {
    for (const int64_t id : row) --balance[id];
  }
  for (const auto& [id, reason] : plan.dropped) --balance[id];
  for (const auto& [id, left] : balance) RC_ASSERT(left == 0);
}

}  // namespace

TEST_CASE("seqlen equals the reference's rule on random sets") {
  CHECK(rc::check([] {
    const Case asked = random_case(false);
    const std::optional<Rows> expected = oracle(asked);
    const auto plan = OpenedSampler("seqlen", asked.options()).plan(asked.asked);
    RC_TAG(expected.has_value());
    RC_ASSERT(plan.has_value() == expected.has_value());
    if (!expected) {
      RC_ASSERT(plan.error().status() == Status::kFailedPrecondition);
      return;
    }
    RC_ASSERT(plan->rows == *expected);
    check_cover(asked, *plan);
  }));
}

TEST_CASE("strict seqlen loses nothing but what is too long or below the minimum, and keeps every limit") {
  CHECK(rc::check([] {
    const Case asked = random_case(true);
    const Planned plan = or_throw(OpenedSampler("seqlen", asked.options()).plan(asked.asked));
    check_cover(asked, plan);
    for (const auto& row : plan.rows) {
      int64_t tokens = 0;
      for (const int64_t id : row) tokens += asked.length(id);
      RC_ASSERT(!row.empty());
      RC_ASSERT(tokens <= asked.max_tokens);
      RC_ASSERT(static_cast<int64_t>(row.size()) >= asked.min_batch_size);
      RC_ASSERT(asked.max_batch_size == 0 || static_cast<int64_t>(row.size()) <= asked.max_batch_size);
    }
    for (const auto& [id, reason] : plan.dropped) {
      RC_ASSERT(reason == (asked.length(id) > asked.max_tokens ? "too_long" : "below_min_batch_size"));
      RC_ASSERT(reason == "too_long" || asked.min_batch_size > 1);
    }
    if (asked.same_size) {
      const auto batch = static_cast<size_t>(asked.asked.rows_per_batch);
      for (size_t i = 0; i < plan.rows.size(); ++i) {
        RC_ASSERT(plan.rows[i].size() == plan.rows[i - i % batch].size());
      }
    }
  }));
}

TEST_CASE("strict seqlen without limits on counts is first come, first packed") {
  CHECK(rc::check([] {
    Case asked = random_case(true);
    asked.min_batch_size = asked.max_batch_size = 0;
    asked.same_size = false;
    asked.order = "dataloader";
    Rows expected;
    int64_t tokens = 0;
    for (const int64_t id : asked.chosen()) {
      if (asked.length(id) > asked.max_tokens) continue;
      if (expected.empty() || tokens + asked.length(id) > asked.max_tokens) {
        expected.emplace_back();
        tokens = 0;
      }
      expected.back().push_back(id);
      tokens += asked.length(id);
    }
    RC_ASSERT(or_throw(OpenedSampler("seqlen", asked.options()).plan(asked.asked)).rows == expected);
  }));
}

TEST_CASE("the plan is a function of the request: another instance gives the same") {
  CHECK(rc::check([] {
    const Case asked = random_case(true);
    OpenedSampler first("seqlen", asked.options());
    const Planned plan = or_throw(first.plan(asked.asked));
    Asked other = asked.asked;
    other.epoch += 1;
    (void)first.plan(other);
    RC_ASSERT(or_throw(first.plan(asked.asked)) == plan);
    RC_ASSERT(or_throw(OpenedSampler("seqlen", asked.options()).plan(asked.asked)) == plan);
  }));
}

}  // namespace seqlen_property_test
