// What every packing sampler promises, on random sets, through the plugin host.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <set>

#include "packing_cases.hpp"
#include "packing_oracle.hpp"
#include "sampler_plugin.hpp"

namespace packing_property_test {

using namespace pliant;
using namespace pliant::test;

namespace {

/// Every token of every sequence asked for is in exactly one row, or its sequence is dropped or truncated.
void check_cover(const Case& asked, const Planned& plan) {
  std::map<int64_t, std::vector<std::pair<int64_t, int64_t>>> pieces;
  for (size_t row = 0; row < plan.rows.size(); ++row) {
    RC_ASSERT(!plan.rows[row].empty() || row >= rows_with_sequences(asked, plan));
    for (size_t i = 0; i < plan.rows[row].size(); ++i) pieces[plan.rows[row][i]].push_back(plan.pieces[row][i]);
  }
  uint64_t truncated = 0;
  for (auto& [id, parts] : pieces) {
    std::sort(parts.begin(), parts.end());
    int64_t end = 0;
    for (const auto& [first, count] : parts) {
      RC_ASSERT(first == end);
      RC_ASSERT(count >= 1);
      end += count;
    }
    const int64_t length = asked.asked.lengths[static_cast<size_t>(id)];
    RC_ASSERT(end <= length);
    truncated += end < length ? 1 : 0;
  }
  RC_ASSERT(plan.truncated_count == truncated);
  RC_ASSERT(plan.sequence_count == pieces.size());
  std::set<int64_t> expected(asked.asked.ids.begin(), asked.asked.ids.end());
  if (!asked.asked.has_ids) {
    for (size_t id = 0; id < asked.asked.lengths.size(); ++id) expected.insert(static_cast<int64_t>(id));
  }
  std::set<int64_t> seen;
  for (const auto& [id, parts] : pieces) RC_ASSERT(seen.insert(id).second);
  for (const auto& [id, reason] : plan.dropped) {
    RC_ASSERT(seen.insert(id).second);
    const bool too_long = reason == "too_long" && asked.word("over_long") == "drop";
    const bool small = reason == "below_min_sequences" && asked.integer("min_sequences") > 1;
    RC_ASSERT(too_long || small || (reason == "incomplete_batch" && asked.word("tail") == "drop"));
  }
  RC_ASSERT(seen == expected);
}

void check_limits(const Case& asked, const Planned& plan) {
  for (size_t row = 0; row < rows_with_sequences(asked, plan); ++row) {
    int64_t sum = 0;
    int64_t longest = 0;
    for (const auto& [first, count] : plan.pieces[row]) {
      sum += count;
      longest = std::max(longest, count);
    }
    const auto sequences = static_cast<int64_t>(plan.rows[row].size());
    RC_ASSERT((asked.is_padded() ? longest * sequences : sum) <= asked.budget);
    RC_ASSERT(asked.integer("max_sequences") == 0 || sequences <= asked.integer("max_sequences"));
    if (asked.word("tail") != "fill") RC_ASSERT(sequences >= asked.integer("min_sequences"));
  }
  const auto batch = static_cast<size_t>(asked.asked.rows_per_batch);
  if (asked.word("tail") == "drop") RC_ASSERT(plan.rows.size() % batch == 0);
  if (asked.word("tail") == "fill" && plan.rows.size() % batch != 0) {
    for (size_t row = plan.rows.size() - plan.rows.size() % batch; row < plan.rows.size(); ++row) {
      RC_ASSERT(plan.rows[row].size() == 1);
    }
  }
}

}  // namespace

TEST_CASE("every packer uses every token once or says what it leaves out, and keeps to its limits") {
  for (const std::string& name : kPackers) {
    CAPTURE(name);
    CHECK(rc::check([&] {
      const Case asked = random_case(name);
      const Planned plan = asked.plan();
      check_cover(asked, plan);
      check_limits(asked, plan);
    }));
  }
}

TEST_CASE("every packer gives the same plan again, from the same instance and from another") {
  for (const std::string& name : kPackers) {
    CAPTURE(name);
    CHECK(rc::check([&] {
      const Case asked = random_case(name);
      OpenedSampler first(name, asked.options);
      const Planned plan = or_throw(first.plan(asked.asked));
      Asked other = asked.asked;
      other.epoch += 1;
      other.lengths.push_back(1);
      if (!other.has_ids) (void)first.plan(other);
      RC_ASSERT(or_throw(first.plan(asked.asked)) == plan);
      RC_ASSERT(asked.plan() == plan);
    }));
  }
}

TEST_CASE("random order differs by epoch and by seed") {
  for (const std::string& name : kPackers) {
    CAPTURE(name);
    Asked asked;
    for (int32_t i = 0; i < 100; ++i) asked.lengths.push_back(1 + i % 30);
    OpenedSampler sampler(name, {{"max_tokens", int64_t{40}}, {"order", "random"}});
    const Planned plan = or_throw(sampler.plan(asked));
    asked.epoch = 1;
    const Planned later = or_throw(sampler.plan(asked));
    asked.epoch = 0;
    asked.seed = 1;
    const Planned seeded = or_throw(sampler.plan(asked));
    CHECK(plan.rows != later.rows);
    CHECK(plan.rows != seeded.rows);
    CHECK(later.rows != seeded.rows);
  }
}

TEST_CASE("next_fit and padded_budget keep the order of the sequences, best_fit that of their packs' first ones") {
  CHECK(rc::check([] {
    Case asked = random_case(*rc::gen::elementOf(std::vector<std::string>{"next_fit", "padded_budget", "best_fit"}));
    asked.asked.has_ids = false;
    asked.options["order"] = "dataloader";
    if (asked.sampler == "best_fit" && asked.word("tail") == "fill") asked.options["tail"] = "keep";  // parts packs
    int64_t last = -1;
    const Planned plan = asked.plan();
    for (size_t i = 0; i < rows_with_sequences(asked, plan); ++i) {
      const auto& row = plan.rows[i];
      RC_ASSERT(row.front() >= last);
      RC_ASSERT(std::is_sorted(row.begin(), row.end()));
      last = asked.sampler == "best_fit" ? row.front() : row.back();
    }
  }));
}

TEST_CASE("best_fit has as many packs as best-fit-decreasing sequence by sequence, in every order") {
  CHECK(rc::check([] {
    Case asked = random_case("best_fit");
    asked.asked.has_ids = false;
    asked.options["over_long"] = "truncate";
    asked.options["min_sequences"] = int64_t{0};
    asked.options["max_sequences"] = int64_t{0};
    asked.options["tail"] = "keep";
    std::vector<int32_t> sizes = asked.asked.lengths;
    for (int32_t& size : sizes) size = std::min(size, static_cast<int32_t>(asked.budget));
    RC_ASSERT(asked.plan().rows.size() == best_fit_by_loop(sizes, asked.budget, 0).size());
  }));
}

TEST_CASE("streaming lets no sequence wait longer than max_wait rows") {
  CHECK(rc::check([] {
    Case asked = random_case("streaming");
    asked.asked.has_ids = false;
    asked.options["order"] = "dataloader";
    asked.options["over_long"] = "truncate";
    asked.options["min_sequences"] = int64_t{0};
    asked.options["tail"] = "keep";
    const Planned plan = asked.plan();
    // Before sequence i was taken, packs of sequences before it only can have come out.
    std::vector<size_t> row_of(asked.asked.lengths.size());
    for (size_t row = 0; row < plan.rows.size(); ++row) {
      for (const int64_t id : plan.rows[row]) row_of[static_cast<size_t>(id)] = row;
    }
    std::vector<int64_t> latest(plan.rows.size());
    for (size_t row = 0; row < plan.rows.size(); ++row) {
      latest[row] = *std::max_element(plan.rows[row].begin(), plan.rows[row].end());
    }
    for (size_t id = 0; id < row_of.size(); ++id) {
      int64_t passed = 0;
      for (size_t row = 0; row < row_of[id]; ++row) passed += latest[row] > static_cast<int64_t>(id) ? 1 : 0;
      RC_ASSERT(passed <= asked.integer("max_wait"));
    }
  }));
}

TEST_CASE("concat makes rows of the same number of tokens and uses every token once") {
  CHECK(rc::check([] {
    Case asked = random_case("concat");
    const auto tail = *rc::gen::elementOf(std::vector<std::string>{"keep", "pad", "drop"});
    asked.options = {{"max_tokens", asked.budget},
                     {"order", asked.word("order")},
                     {"tail", tail},
                     {"over_long", "split"},
                     {"min_sequences", int64_t{0}}};
    Case shown = asked;
    shown.options = asked.options;
    asked.options.erase("over_long");
    asked.options.erase("min_sequences");
    const Planned plan = asked.plan();
    check_cover(shown, plan);
    const size_t rows = rows_with_sequences(shown, plan);
    for (size_t row = 0; row < rows; ++row) {
      int64_t tokens = 0;
      for (const auto& piece : plan.pieces[row]) tokens += piece.second;
      RC_ASSERT(tokens == asked.budget || (row + 1 == rows && tokens < asked.budget));
    }
  }));
}

}  // namespace packing_property_test
