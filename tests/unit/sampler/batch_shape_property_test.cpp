// Budgets of loss tokens, batches of equal rows and cost windows on random sets, through the plugin host.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "packing_cases.hpp"
#include "packing_oracle.hpp"

namespace batch_shape_property_test {

using namespace pliant;
using namespace pliant::test;

namespace {

const std::vector<std::string> kSumming{"next_fit", "best_fit", "streaming"};

/// A case whose sequences count loss tokens, and what each counts.
std::pair<Case, std::vector<int32_t>> loss_case(const std::string& name) {
  Case asked = random_case(name);
  asked.options["budget_unit"] = "loss_tokens";
  asked.options["over_long"] = "drop";
  std::vector<int32_t> sizes;
  for (const int32_t length : asked.asked.lengths) {
    asked.asked.loss_tokens.push_back(static_cast<int32_t>(below(length + 1)));
    sizes.push_back(std::max(asked.asked.loss_tokens.back(), 1));
  }
  return {asked, sizes};
}

/// Entries of a plan as (id, first token), by row, each row as a set; then the rows in order.
using RowSet = std::vector<std::vector<std::pair<int64_t, int64_t>>>;
RowSet rows_of(const Planned& plan, size_t first, size_t count) {
  RowSet rows;
  for (size_t row = first; row < first + count; ++row) {
    auto& entries = rows.emplace_back();
    for (size_t i = 0; i < plan.rows[row].size(); ++i) {
      entries.emplace_back(plan.rows[row][i], plan.pieces[row][i].first);
    }
  }
  return rows;
}
RowSet sorted(RowSet rows) {
  std::sort(rows.begin(), rows.end());
  return rows;
}

/// q times the cost of a row.
int64_t cost_of(const Planned& plan, size_t row, int64_t q) {
  int64_t cost = 0;
  for (const auto& piece : plan.pieces[row]) cost += piece.second * q + piece.second * piece.second;
  return cost;
}

Case windowed_case() {
  auto packers = kPackers;
  packers.emplace_back("concat");
  Case asked = random_case(*rc::gen::elementOf(packers));
  if (asked.sampler == "concat") {
    asked.options = {{"max_tokens", asked.budget}, {"order", asked.word("order")}};
  }
  return asked;
}

}  // namespace

TEST_CASE("packs by loss tokens are the packs that tokens give for lengths of as many") {
  for (const std::string& name : kSumming) {
    CAPTURE(name);
    CHECK(rc::check([&] {
      auto [asked, sizes] = loss_case(name);
      if (asked.word("order") == "seqlen") asked.options["order"] = "random";  // sorts by length, not by what counts
      Case plain = asked;
      plain.options["budget_unit"] = "tokens";
      plain.asked.lengths = sizes;
      plain.asked.loss_tokens.clear();
      const Planned plan = asked.plan();
      const Planned expected = plain.plan();
      RC_ASSERT(plan.rows == expected.rows);
      RC_ASSERT(plan.dropped == expected.dropped);
      for (size_t row = 0; row < plan.rows.size(); ++row) {
        for (size_t i = 0; i < plan.rows[row].size(); ++i) {
          const int64_t length = asked.asked.lengths[static_cast<size_t>(plan.rows[row][i])];
          RC_ASSERT(plan.pieces[row][i] == std::make_pair(int64_t{0}, length));
        }
      }
    }));
  }
}

TEST_CASE("rows by loss tokens keep to the budget and to the bound that is reported") {
  for (const std::string& name : kSumming) {
    CAPTURE(name);
    CHECK(rc::check([&] {
      auto [asked, sizes] = loss_case(name);
      OpenedSampler sampler(name, asked.options);
      const Planned plan = or_throw(sampler.plan(asked.asked));
      const auto report = or_throw(sampler.report());
      int64_t used = 0;
      std::vector<int32_t> packed;
      for (const auto& row : plan.rows) {
        int64_t sum = 0;
        for (const int64_t id : row) {
          packed.push_back(sizes[static_cast<size_t>(id)]);
          sum += packed.back();
        }
        RC_ASSERT(sum <= asked.budget);
        used += sum;
      }
      RC_ASSERT(report.unit == PLIANT_UNIT_LOSS_TOKENS);
      RC_ASSERT(report.used == static_cast<uint64_t>(used));
      RC_ASSERT(report.least_rows <= plan.rows.size());
      if (packed.size() <= 8) {
        RC_ASSERT(report.least_rows <=
                  fewest_by_trying(packed, asked.budget, static_cast<size_t>(asked.integer("max_sequences"))));
      }
    }));
  }
}

TEST_CASE("streams by loss tokens give the rows of the plan, from any row on after a restore") {
  for (const std::string& name : {std::string("next_fit"), std::string("streaming")}) {
    CAPTURE(name);
    CHECK(rc::check([&] {
      Case asked = loss_case(name).first;
      asked.options["over_long"] = "error";
      asked.options["order"] = "dataloader";
      asked.options["tail"] = "keep";
      asked.options["min_sequences"] = int64_t{0};
      asked.options["max_tokens"] = int64_t{70};
      const Planned plan = asked.plan();
      OpenedSampler first(name, asked.options);
      or_throw(first.open(asked.asked));
      Planned rows;
      (void)or_throw(first.next(static_cast<uint64_t>(below(6)), rows));
      const std::string saved = or_throw(first.instance().save());
      OpenedSampler second(name, asked.options);
      or_throw(second.instance().load(saved));
      or_throw(second.open(asked.asked));
      RC_ASSERT(or_throw(second.instance().save()) == saved);
      while (or_throw(second.next(3, rows)) != 0) {
      }
      RC_ASSERT(rows.rows == plan.rows);
      RC_ASSERT(rows.pieces == plan.pieces);
    }));
  }
}

TEST_CASE("with same_sequences all rows of a batch have one number of sequences, and nothing is lost") {
  for (const std::string& name : kPackers) {
    CAPTURE(name);
    CHECK(rc::check([&] {
      Case asked = random_case(name);
      asked.options["min_sequences"] = int64_t{0};
      Case plain = asked;
      asked.options["same_sequences"] = true;
      const Planned plan = asked.plan();
      const auto batch = static_cast<size_t>(asked.asked.rows_per_batch);
      for (size_t row = 0; row < rows_with_sequences(asked, plan); ++row) {
        RC_ASSERT(!plan.rows[row].empty());
        RC_ASSERT(plan.rows[row].size() == plan.rows[row - row % batch].size());
      }
      if (asked.word("tail") == "drop") {
        RC_ASSERT(plan.rows.size() % batch == 0);
        return;
      }
      plain.options["tail"] = "keep";
      const Planned before = plain.plan();
      RC_ASSERT(plan.dropped == before.dropped);
      RC_ASSERT(plan.sequence_count == before.sequence_count);
      RC_ASSERT(plan.truncated_count == before.truncated_count);
      // Every row is a row of the plan without the option, or a part of one.
      std::map<std::pair<int64_t, int64_t>, size_t> row_of;
      const RowSet whole = rows_of(before, 0, before.rows.size());
      for (size_t row = 0; row < whole.size(); ++row) {
        for (const auto& entry : whole[row]) row_of[entry] = row;
      }
      size_t seen = 0;
      for (const auto& row : rows_of(plan, 0, plan.rows.size())) {
        for (const auto& entry : row) RC_ASSERT(row_of.at(entry) == row_of.at(row.front()));
        seen += row.size();
      }
      RC_ASSERT(seen == row_of.size());
      if (asked.word("tail") == "fill" && plan.rows.size() % batch != 0) RC_ASSERT(plan.rows.back().size() == 1);
    }));
  }
}

TEST_CASE("rows that have one number of sequences anyway stay as they are with same_sequences") {
  CHECK(rc::check([] {
    Asked asked;
    const auto each = static_cast<int32_t>(1 + below(5));
    asked.lengths.assign(static_cast<size_t>(each) * static_cast<size_t>(below(30)), 1);
    asked.rows_per_batch = 1 + below(7);
    OptionMap options{{"max_tokens", int64_t{each}}};
    const Planned plain = or_throw(OpenedSampler("next_fit", options).plan(asked));
    options["same_sequences"] = true;
    RC_ASSERT(or_throw(OpenedSampler("next_fit", options).plan(asked)) == plain);
  }));
}

TEST_CASE("cost windows keep the rows, move them inside their window only, and put like cost together") {
  CHECK(rc::check([] {
    Case asked = windowed_case();
    const Planned before = asked.plan();
    const int64_t q = 1 + below(60);
    const auto window = static_cast<size_t>(1 + below(4));
    asked.options["cost_window"] = static_cast<int64_t>(window);
    asked.options["cost_window_length"] = q;
    const Planned plan = asked.plan();
    RC_ASSERT(plan.rows.size() == before.rows.size());
    RC_ASSERT(plan.dropped == before.dropped);
    const auto batch = static_cast<size_t>(asked.asked.rows_per_batch);
    for (size_t begin = 0; begin < plan.rows.size(); begin += window * batch) {
      const size_t count = std::min(window * batch, plan.rows.size() - begin);
      const RowSet in_window = rows_of(before, begin, count);
      RC_ASSERT(sorted(rows_of(plan, begin, count)) == sorted(in_window));
      // Costs of two batches do not overlap; the short one, always the last, has the least.
      std::vector<std::pair<int64_t, int64_t>> spans;
      for (size_t first = begin; first < begin + count; first += batch) {
        const size_t rows = std::min(batch, begin + count - first);
        std::vector<int64_t> costs;
        for (size_t row = first; row < first + rows; ++row) costs.push_back(cost_of(plan, row, q));
        spans.emplace_back(*std::min_element(costs.begin(), costs.end()),
                           *std::max_element(costs.begin(), costs.end()));
        // Inside a batch the order of before stays.
        const RowSet inside = rows_of(plan, first, rows);
        size_t last = 0;
        for (const auto& row : inside) {
          const auto at = static_cast<size_t>(std::find(in_window.begin(), in_window.end(), row) - in_window.begin());
          RC_ASSERT(at >= last);
          last = at;
        }
        if (rows < batch) {
          for (const auto& span : spans) RC_ASSERT(spans.back().second <= span.first || &span == &spans.back());
        }
      }
      std::sort(spans.begin(), spans.end());
      for (size_t i = 1; i < spans.size(); ++i) RC_ASSERT(spans[i - 1].second <= spans[i].first);
    }
  }));
}

TEST_CASE("the batches of a cost window come in another order with another seed or epoch, the same with the same") {
  Asked asked;
  for (int32_t i = 0; i < 400; ++i) asked.lengths.push_back(1 + i * 37 % 97);
  asked.rows_per_batch = 4;
  const OptionMap options{{"max_tokens", int64_t{97}},
                          {"max_sequences", int64_t{1}},
                          {"cost_window", int64_t{16}},
                          {"cost_window_length", int64_t{50}}};
  OpenedSampler sampler("next_fit", options);
  const Planned plan = or_throw(sampler.plan(asked));
  CHECK(or_throw(sampler.plan(asked)) == plan);
  asked.epoch = 1;
  const Planned later = or_throw(sampler.plan(asked));
  CHECK(later.rows != plan.rows);
  asked.epoch = 0;
  asked.seed = 1;
  const Planned seeded = or_throw(sampler.plan(asked));
  CHECK(seeded.rows != plan.rows);
  CHECK(seeded.rows != later.rows);
  std::map<int64_t, int> first_batch;  // the cheapest batch of the first window is anywhere in it
  for (uint64_t seed = 0; seed < 200; ++seed) {
    asked.seed = seed;
    const Planned one = or_throw(sampler.plan(asked));
    size_t cheapest = 0;
    for (size_t row = 0; row < 64; ++row) {
      if (cost_of(one, row, 50) < cost_of(one, cheapest, 50)) cheapest = row;
    }
    ++first_batch[static_cast<int64_t>(cheapest / 4)];
  }
  CHECK(first_batch.size() > 12);
}

TEST_CASE("cost windows cut what ranks wait for each other") {
  Asked asked;
  uint64_t state = 7020;
  for (size_t i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const double uniform = static_cast<double>(state >> 40U) / static_cast<double>(uint64_t{1} << 24U);
    asked.lengths.push_back(static_cast<int32_t>(std::min(8192.0, 60.0 * std::exp(5.0 * uniform))));
  }
  asked.rows_per_batch = 8;
  const auto lost = [&](int64_t window) {
    OptionMap options{{"max_tokens", int64_t{8192}}, {"cost_window", window}};
    if (window != 0) options["cost_window_length"] = int64_t{8192};
    const Planned plan = or_throw(OpenedSampler("streaming", options).plan(asked));
    double waited = 0;
    double all = 0;
    for (size_t first = 0; first + 8 <= plan.rows.size(); first += 8) {
      double most = 0;
      double sum = 0;
      for (size_t row = first; row < first + 8; ++row) {
        const auto cost = static_cast<double>(cost_of(plan, row, 8192));
        most = std::max(most, cost);
        sum += cost;
      }
      waited += 8 * most - sum;
      all += 8 * most;
    }
    return waited / all;
  };
  CHECK(lost(0) > 0.05);
  CHECK(lost(8) < 0.6 * lost(0));
  CHECK(lost(64) < 0.5 * lost(8));
}

}  // namespace batch_shape_property_test
