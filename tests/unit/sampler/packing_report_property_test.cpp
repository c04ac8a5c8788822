// What the extension pliant.packing/0 says of random epochs, against sums over their rows and against brute force.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>

#include "../plugins/sampler/common/packing_report.hpp"
#include "packing_cases.hpp"
#include "packing_oracle.hpp"

namespace packing_report_property_test {

using namespace pliant;
using namespace pliant::test;

namespace {

/// Few enough sequences to try every packing.
Case small_case(const std::string& name) {
  Case made = random_case(name);
  made.asked.has_ids = false;
  made.asked.ids.clear();
  const auto n = *rc::gen::inRange<size_t>(0, 8);
  made.asked.lengths = *rc::gen::container<std::vector<int32_t>>(n, rc::gen::inRange<int32_t>(1, 70));
  if (below(2) == 0) made.options["quadratic_length"] = 20 + below(100);
  if (made.budget < 3) made.budget = 3;
  made.options["max_tokens"] = made.budget;
  if (name == "padded_budget") {
    made.options["length_multiple"] = 1 + below(std::min<int64_t>(made.budget / 2, 6));
    made.options["sequences_multiple"] = 1 + below(3);
  }
  return made;
}

int64_t cost_of(const Case& asked, int64_t tokens) {
  const auto given = asked.options.find("quadratic_length");
  const int64_t q = given == asked.options.end() ? 0 : std::get<int64_t>(given->second);
  return q == 0 ? tokens : tokens + (tokens * tokens + q - 1) / q;
}
int64_t padded(const Case& asked, int64_t tokens) {
  const auto given = asked.options.find("length_multiple");
  const int64_t multiple = given == asked.options.end() ? 1 : std::get<int64_t>(given->second);
  return (tokens + multiple - 1) / multiple * multiple;
}

struct Sums {
  std::vector<int64_t> tokens;  ///< of every entry
  int64_t used = 0;
};
Sums sums_of(const Case& asked, const Planned& plan) {
  Sums sums;
  for (const auto& row : plan.pieces) {
    int64_t longest = 0;
    for (const auto& piece : row) {
      sums.tokens.push_back(piece.second);
      longest = std::max(longest, piece.second);
      if (!asked.is_padded()) sums.used += cost_of(asked, piece.second);
    }
    if (asked.is_padded()) sums.used += static_cast<int64_t>(row.size()) * cost_of(asked, padded(asked, longest));
  }
  return sums;
}

}  // namespace

TEST_CASE("every packer reports what its rows use and a bound that no packing of their entries beats") {
  for (const std::string& name : kPackers) {
    CAPTURE(name);
    CHECK(rc::check([&] {
      Case asked = small_case(name);
      asked.options["over_long"] = *rc::gen::elementOf(std::vector<std::string>{"drop", "truncate"});
      OpenedSampler sampler(name, asked.options);
      const Planned plan = or_throw(sampler.plan(asked.asked));
      const auto report = or_throw(sampler.report());
      const Sums sums = sums_of(asked, plan);
      RC_ASSERT(report.budget == asked.budget);
      RC_ASSERT(report.used == static_cast<uint64_t>(sums.used));
      RC_ASSERT(report.used <= static_cast<uint64_t>(asked.budget) * plan.rows.size());
      RC_ASSERT(report.least_rows <= plan.rows.size());
      RC_ASSERT(report.least_rows >= (plan.rows.empty() ? 0 : 1));
      const auto most = static_cast<size_t>(asked.integer("max_sequences"));
      if (asked.is_padded()) {
        const auto capacity = [&](int64_t longest) {
          const auto fit = static_cast<size_t>(asked.budget / cost_of(asked, padded(asked, longest)));
          return most == 0 ? fit : std::min(most, fit);
        };
        RC_ASSERT(report.least_rows == fewest_padded_by_trying(sums.tokens, capacity));
      } else {
        std::vector<int32_t> sizes;
        for (const int64_t tokens : sums.tokens) sizes.push_back(static_cast<int32_t>(cost_of(asked, tokens)));
        const size_t fewest = fewest_by_trying(sizes, asked.budget, most);
        RC_TAG(report.least_rows == fewest);
        RC_ASSERT(report.least_rows <= fewest);
      }
    }));
  }
}

TEST_CASE("seqlen and fixed report bounds that no packing beats, concat the number itself") {
  CHECK(rc::check([] {
    const auto name = *rc::gen::elementOf(std::vector<std::string>{"seqlen", "fixed", "concat"});
    const int64_t budget = 1 + below(40);
    OptionMap options{{"max_tokens", budget}};
    size_t most = 0;
    if (name != "concat") options["over_long"] = "drop";
    if (name == "fixed") most = 1;
    if (name == "seqlen") {
      most = static_cast<size_t>(below(4));
      options["max_batch_size"] = static_cast<int64_t>(most);
      options["strict"] = true;
    }
    Asked asked;
    asked.lengths =
        *rc::gen::container<std::vector<int32_t>>(*rc::gen::inRange<size_t>(0, 8), rc::gen::inRange<int32_t>(1, 50));
    OpenedSampler sampler(name, options);
    const Planned plan = or_throw(sampler.plan(asked));
    const auto report = or_throw(sampler.report());
    std::vector<int32_t> sizes;
    int64_t tokens = 0;
    for (const auto& row : plan.pieces) {
      for (const auto& piece : row) {
        sizes.push_back(static_cast<int32_t>(piece.second));
        tokens += piece.second;
      }
    }
    RC_ASSERT(report.used == static_cast<uint64_t>(tokens));
    RC_ASSERT(report.used <= static_cast<uint64_t>(budget) * plan.rows.size());
    if (name == "concat") {
      RC_ASSERT(report.least_rows == plan.rows.size());
    } else {
      RC_ASSERT(report.least_rows <= fewest_by_trying(sizes, budget, most));
    }
  }));
}

TEST_CASE("the fewest padded packs under fixed shapes are those that trying finds") {
  CHECK(rc::check([] {
    sampler::PaddedRule rule;
    rule.budget = 1000;
    int64_t length = 0;
    for (int64_t shapes = 1 + below(3); shapes > 0; --shapes) {
      length += 1 + below(10);
      rule.shapes.push_back({length, static_cast<uint64_t>(1 + below(5))});
    }
    const auto capacity = [&](int64_t longest) { return rule.capacity(longest); };
    const auto lengths = *rc::gen::container<std::vector<int64_t>>(*rc::gen::inRange<size_t>(0, 8),
                                                                   rc::gen::inRange<int64_t>(1, length + 1));
    sampler::SizeCounts by_length;
    for (const int64_t one : lengths) by_length.add(one);
    std::vector<int64_t> values;
    std::vector<uint64_t> counts;
    by_length.list(values, counts);
    RC_ASSERT(sampler::fewest_padded_packs(values, counts, capacity) == fewest_padded_by_trying(lengths, capacity));
  }));
}

TEST_CASE("sizes are counted in ascending order, small and large ones") {
  CHECK(rc::check([](const std::vector<uint32_t>& drawn) {
    sampler::SizeCounts by_size;
    std::map<int64_t, uint64_t> expected;
    for (const uint32_t one : drawn) {
      const auto size = static_cast<int64_t>(one % 2 == 0 ? one % 7 : one);
      by_size.add(size);
      ++expected[size];
    }
    std::vector<int64_t> sizes;
    std::vector<uint64_t> counts;
    by_size.list(sizes, counts);
    RC_ASSERT(sizes.size() == expected.size());
    size_t at = 0;
    for (const auto& [size, count] : expected) {
      RC_ASSERT(sizes[at] == size);
      RC_ASSERT(counts[at++] == count);
    }
  }));
}

}  // namespace packing_report_property_test
