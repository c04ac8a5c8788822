// Every sampler under states that are not its own, budgets and batches at the edge of their type, and a million
// sequences of one token.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "sampler_plugin.hpp"
#include "thorough.hpp"

namespace bad_input_test {

using namespace pliant;
using namespace pliant::test;

namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

/// All combinations of options, or those in which every pair of two options comes up.
const bool kAllCombinations = is_thorough();

/// Every sampler with options that it takes.
const std::map<std::string, OptionMap> kSamplers{
    {"fixed", {{"order", "random"}}},
    {"seqlen", {{"max_tokens", int64_t{64}}, {"strict", true}}},
    {"next_fit", {{"max_tokens", int64_t{64}}}},
    {"best_fit", {{"max_tokens", int64_t{64}}}},
    {"streaming", {{"max_tokens", int64_t{64}}, {"open_packs", int64_t{4}}, {"max_wait", int64_t{8}}}},
    {"concat", {{"max_tokens", int64_t{64}}}},
    {"padded_budget", {{"max_tokens", int64_t{64}}}},
    {"bucketed", {{"max_tokens", int64_t{64}}}}};

bool streams(const std::string& name) {
  return name == "next_fit" || name == "streaming" || name == "concat";
}

Asked some_sequences() {
  Asked asked;
  for (int32_t i = 0; i < 300; ++i) asked.lengths.push_back(1 + i * 7 % 60);
  asked.rows_per_batch = 4;
  return asked;
}

/// The state of a sampler in the middle of its epoch where it has one.
std::string state_of(OpenedSampler& sampler, const std::string& name, const Asked& asked) {
  if (streams(name)) {
    or_throw(sampler.open(asked));
    Planned rows;
    REQUIRE(or_throw(sampler.next(7, rows)) == 7);
  }
  return or_throw(sampler.instance().save());
}

/// `sampler` refuses `bytes` as damaged or foreign.
void refuses(OpenedSampler& sampler, const std::string& bytes) {
  const auto loaded = sampler.instance().load(bytes);
  REQUIRE_FALSE(loaded.has_value());
  const bool named =
      loaded.error().status() == Status::kDataLoss || loaded.error().status() == Status::kFailedPrecondition;
  CHECK(named);
}

/// What begin_epoch announces of `asked`.
pliant_epoch announced(OpenedSampler& sampler, const Asked& asked) {
  pliant_epoch_request request{};
  request.struct_size = sizeof(request);
  request.rows_per_batch = asked.rows_per_batch;
  request.sequence_count = asked.lengths.size();
  request.lengths = asked.lengths.data();
  pliant_epoch epoch{};
  epoch.struct_size = sizeof(epoch);
  pliant_error error = plugin::fresh_error();
  const auto& slots = sampler.instance().table<pliant_batch_sampler>();
  const int32_t status = slots.begin_epoch(sampler.instance().self(), &request, &epoch, &error);
  INFO(error.message);
  REQUIRE(status == PLIANT_OK);
  return epoch;
}

const Asked& a_million() {
  static const Asked kAsked = [] {
    Asked asked;
    asked.lengths.assign(1000000, 1);
    asked.rows_per_batch = 4;
    return asked;
  }();
  return kAsked;
}

OptionMap with(OptionMap options, const OptionMap& more) {
  for (const auto& [key, value] : more) options[key] = value;
  return options;
}

/// Rows of a million sequences of one token, which all fit one pack, in batches of 4.
uint64_t expected_rows(const OptionMap& options) {
  if (options.at("tail") == OptionText("drop")) return 0;
  return options.at("tail") == OptionText("keep") ? 1 : 4;
}

}  // namespace

TEST_CASE("every sampler refuses a state that is truncated, lengthened, flipped or empty, and keeps its own") {
  const Asked asked = some_sequences();
  for (const auto& one : kSamplers) {
    const std::string& name = one.first;
    CAPTURE(name);
    OpenedSampler sampler(name, one.second);
    const std::string saved = state_of(sampler, name, asked);
    for (size_t size = 0; size < saved.size(); ++size) {
      CAPTURE(size);
      refuses(sampler, saved.substr(0, size));
      std::string flipped = saved;
      flipped[size] = static_cast<char>(flipped[size] ^ 0x10);
      refuses(sampler, flipped);
    }
    refuses(sampler, saved + std::string(1, '\0'));
    refuses(sampler, saved + saved);
    CHECK(or_throw(sampler.instance().save()) == saved);
    CHECK(sampler.instance().load(saved).has_value());
  }
}

TEST_CASE("every sampler refuses random bytes, alone and after a head of its own") {
  const Asked asked = some_sequences();
  std::mt19937_64 engine(7020);
  for (const auto& one : kSamplers) {
    const std::string& name = one.first;
    CAPTURE(name);
    OpenedSampler sampler(name, one.second);
    const std::string saved = state_of(sampler, name, asked);
    for (int round = 0; round < 500; ++round) {
      std::string bytes(engine() % 300, '\0');
      for (char& byte : bytes) byte = static_cast<char>(engine());
      refuses(sampler, bytes);
      const size_t head = engine() % saved.size();
      if (saved.compare(head, std::string::npos, bytes) != 0) refuses(sampler, saved.substr(0, head) + bytes);
    }
    CHECK(or_throw(sampler.instance().save()) == saved);
  }
}

TEST_CASE("every sampler refuses the state of every other, and of another version of itself") {
  const Asked asked = some_sequences();
  for (const auto& one : kSamplers) {
    const std::string& name = one.first;
    CAPTURE(name);
    OpenedSampler sampler(name, one.second);
    std::string saved = state_of(sampler, name, asked);
    for (const auto& other : kSamplers) {
      if (other.first == name) continue;
      CAPTURE(other.first);
      OpenedSampler reader(other.first, other.second);
      const auto loaded = reader.instance().load(saved);
      REQUIRE_FALSE(loaded.has_value());
      CHECK(loaded.error().status() == Status::kDataLoss);
      CHECK(loaded.error().message().find("this is not a state of sampler " + other.first) != std::string::npos);
    }
    const size_t version = saved.find(", state ") + 8;
    REQUIRE(version < saved.size());
    const char own = std::exchange(saved[version], '9');
    const auto loaded = sampler.instance().load(saved);
    REQUIRE_FALSE(loaded.has_value());
    CHECK(loaded.error().status() == Status::kDataLoss);
    CHECK(loaded.error().message().find("this is not a state of sampler " + name + ", state " + own) !=
          std::string::npos);
  }
}

TEST_CASE("every sampler refuses lengths below zero by their id, whatever its order") {
  for (const auto& one : kSamplers) {
    const std::string& name = one.first;
    CAPTURE(name);
    for (const char* order : {"dataloader", "random", "seqlen"}) {
      for (const int32_t bad : {-1, std::numeric_limits<int32_t>::min()}) {
        CAPTURE(order);
        CAPTURE(bad);
        Asked asked;
        asked.lengths = {4, 5, bad, 6};
        const auto plan =
            OpenedSampler(name, with(one.second, {{name == "seqlen" ? "sequence_picking_order" : "order", order}}))
                .plan(asked);
        REQUIRE_FALSE(plan.has_value());
        CHECK(plan.error().message().find("sequence 2 has a length of " + std::to_string(bad)) != std::string::npos);
      }
    }
  }
}

TEST_CASE("no sequence makes no row and one makes one, for every sampler") {
  for (const auto& one : kSamplers) {
    CAPTURE(one.first);
    Asked none;
    CHECK(or_throw(OpenedSampler(one.first, one.second).plan(none)).rows.empty());
    Asked single;
    single.lengths = {64};
    CHECK(or_throw(OpenedSampler(one.first, one.second).plan(single)).rows == std::vector<std::vector<int64_t>>{{0}});
  }
}

TEST_CASE("the largest budget, batch and limits that there are overflow nothing") {
  Asked asked;
  asked.lengths = {5, std::numeric_limits<int32_t>::max(), 1, std::numeric_limits<int32_t>::max(), 7};
  const uint64_t tokens = 2 * uint64_t{std::numeric_limits<int32_t>::max()} + 13;
  for (const auto& one : kSamplers) {
    const std::string& name = one.first;
    CAPTURE(name);
    for (const int64_t rows_per_batch : {int64_t{1}, kMost}) {
      OptionMap options = with(one.second, {{"max_tokens", kMost}});
      if (name == "streaming") options["max_wait"] = kMost;
      if (name == "seqlen") {
        options["max_batch_size"] = kMost;
        options["required_microbatches_of_same_size"] = true;
      } else if (name != "fixed" && name != "concat") {
        options["max_sequences"] = kMost;
      }
      asked.rows_per_batch = rows_per_batch;
      OpenedSampler sampler(name, options);
      const Planned plan = or_throw(sampler.plan(asked));
      const bool dealt_out = name == "fixed" || (name == "seqlen" && rows_per_batch == kMost);
      if (name != "bucketed") CHECK(plan.rows.size() == (dealt_out ? 5 : 1));
      CHECK(plan.sequence_count == 5);
      const auto report = or_throw(sampler.report());
      CHECK(report.budget == (name == "fixed" ? 0 : kMost));  // a row of fixed is one sequence, whatever fits
      CHECK(report.least_rows == (name == "fixed" ? 5 : 1));
      CHECK(report.used >= tokens);
      if (report.unit == PLIANT_UNIT_TOKENS) CHECK(report.used == tokens);
    }
  }
}

TEST_CASE("shapes, multiples and quadratic lengths at the edge of their type overflow nothing") {
  Asked asked;
  asked.lengths = {5, 1, 7};
  const std::vector<std::string> huge{"9223372036854775807x1", "1x9223372036854775807"};
  CHECK(or_throw(OpenedSampler("padded_budget", {{"max_tokens", kMost}, {"shapes", huge}}).plan(asked)).rows.size() ==
        3);
  for (const char* text : {"9223372036854775807x2", "9223372036854775808x1", "2x9223372036854775807"}) {
    CAPTURE(text);
    CHECK_FALSE(
        OpenedSampler::try_make("padded_budget", {{"max_tokens", kMost}, {"shapes", std::vector<std::string>{text}}})
            .has_value());
  }
  CHECK(or_throw(OpenedSampler("padded_budget",
                               {{"max_tokens", kMost}, {"length_multiple", kMost}, {"sequences_multiple", kMost}})
                     .plan(asked))
            .rows.size() == 3);
  for (const char* name : {"next_fit", "best_fit", "streaming", "padded_budget", "bucketed"}) {
    CAPTURE(name);
    const OptionMap options{{"max_tokens", int64_t{100}}, {"quadratic_length", kMost}};
    CHECK(or_throw(OpenedSampler(name, options).plan(asked)).sequence_count == 3);
    CHECK_FALSE(OpenedSampler::try_make(name, {{"max_tokens", kMost}, {"quadratic_length", kMost}}).has_value());
  }
}

TEST_CASE("a million sequences of one token in a budget of a thousand million: orders, tails and batch shapes") {
  const OptionMap budget{{"max_tokens", int64_t{1000000000}}};
  const std::vector<std::string> orders{"dataloader", "random", "seqlen"};
  const std::vector<std::string> tails{"keep", "pad", "fill", "drop"};
  const std::vector<std::string> over_long{"error", "drop", "truncate", "split"};
  const std::vector<OptionMap> shapes{
      {}, {{"same_sequences", true}}, {{"cost_window", int64_t{2}}, {"cost_window_length", int64_t{100}}}};
  for (const char* name : {"next_fit", "best_fit", "streaming", "padded_budget", "bucketed"}) {
    CAPTURE(name);
    size_t turn = 0;
    for (size_t order = 0; order < 3; ++order) {
      for (size_t tail = 0; tail < tails.size(); ++tail) {
        for (size_t shape = 0; shape < 3; ++shape) {
          if (!kAllCombinations && shape != (order + tail) % 3) continue;
          OptionMap options = with(with(budget, shapes[shape]), {{"order", orders[order]}, {"tail", tails[tail]}});
          options["over_long"] = over_long[turn++ % (tails[tail] == "drop" ? 3 : 4)];
          CAPTURE(orders[order]);
          CAPTURE(tails[tail]);
          CAPTURE(shape);
          OpenedSampler sampler(name, options);
          const pliant_epoch epoch = announced(sampler, a_million());
          CHECK(epoch.row_count == expected_rows(options));
          CHECK(epoch.sequence_count + epoch.dropped_count == 1000000);
          CHECK(or_throw(sampler.report()).used == epoch.sequence_count);
        }
      }
    }
  }
}

TEST_CASE("a million sequences of one token in a budget of a thousand million: units, limits and own options") {
  const auto rows = [](const std::string& name, const OptionMap& more) {
    OpenedSampler sampler(name, with({{"max_tokens", int64_t{1000000000}}}, more));
    return announced(sampler, a_million()).row_count;
  };
  for (const char* name : {"next_fit", "best_fit", "streaming", "padded_budget", "bucketed"}) {
    CAPTURE(name);
    CHECK(rows(name, {{"budget_unit", "cost"}, {"quadratic_length", int64_t{4096}}}) == 1);
    if (!kAllCombinations) continue;
    CHECK(rows(name, {{"quadratic_length", int64_t{1}}}) == 1);
    CHECK(rows(name, {{"max_sequences", int64_t{1}}}) == 1000000);
    CHECK(rows(name, {{"max_sequences", int64_t{1000}}}) == 1000);
    CHECK(rows(name, {{"max_sequences", int64_t{1000}}, {"same_sequences", true}}) == 1000);
    CHECK(rows(name, {{"min_sequences", int64_t{1000000}}}) == 1);
    CHECK(rows(name, {{"min_sequences", int64_t{1000001}}}) == 0);
  }
  for (const char* name : {"next_fit", "best_fit", "streaming"}) {
    CHECK(rows(name, {{"budget_unit", "loss_tokens"}}) == 1);
  }
  CHECK(rows("streaming", {{"open_packs", int64_t{1}}, {"max_wait", int64_t{2}}}) == 1);
  CHECK(rows("padded_budget", {{"length_multiple", int64_t{1000}}}) == 1);
  CHECK(rows("padded_budget", {{"sequences_multiple", int64_t{3}}}) == 2);  // the one that is left over
  CHECK(rows("padded_budget", {{"shapes", std::vector<std::string>{"1x1000", "8x100"}}}) == 1000);
  CHECK(rows("bucketed", {{"bucket_edges", std::vector<int64_t>{1, 2, 3}}}) == 1);
  CHECK(rows("bucketed", {{"buckets", int64_t{4096}}}) == 1);
  const std::vector<std::string> orders{"dataloader", "random", "seqlen"};
  for (size_t i = 0; i < (kAllCombinations ? 3 : 1); ++i) {
    const std::string& order = orders[i];
    CHECK(rows("fixed", {{"order", order}}) == 1000000);
    CHECK(rows("concat", {{"order", order}}) == 1);
    CHECK(rows("concat", {{"order", order}, {"tail", "drop"}}) == 0);
    CHECK(rows("concat", {{"order", order}, {"cost_window", int64_t{2}}, {"cost_window_length", int64_t{9}}}) == 1);
    CHECK(rows("seqlen", {{"sequence_picking_order", order}, {"strict", true}}) == 1);
    CHECK(rows("seqlen",
               {{"sequence_picking_order", order}, {"strict", true}, {"required_microbatches_of_same_size", true}}) ==
          4);
    // The last sequence is not used as in the reference, three of four more neither.
    CHECK(rows("seqlen", {{"sequence_picking_order", order}, {"required_microbatches_of_same_size", true}}) == 4);
  }
}

TEST_CASE("a million sequences of one token in a budget of a thousand million are one row of a stream") {
  for (const OptionMap& more : {OptionMap{}, OptionMap{{"budget_unit", "loss_tokens"}}}) {
    for (const char* name : {"next_fit", "streaming", "concat"}) {
      if (name == std::string("concat") && !more.empty()) continue;
      CAPTURE(name);
      OpenedSampler sampler(name, with({{"max_tokens", int64_t{1000000000}}}, more));
      or_throw(sampler.open(a_million()));
      Planned rows;
      CHECK(sampler.next(1, rows, 999999).error().status() == Status::kOutOfRange);
      const std::string saved = or_throw(sampler.instance().save());  // the row that did not fit is in it
      OpenedSampler restored(name, with({{"max_tokens", int64_t{1000000000}}}, more));
      or_throw(restored.instance().load(saved));
      or_throw(restored.open(a_million()));
      CHECK(or_throw(restored.next(1, rows, 1000000)) == 1);
      CHECK(rows.rows.back().size() == 1000000);
      CHECK(or_throw(restored.next(1, rows, 1000000)) == 0);
    }
  }
}

}  // namespace bad_input_test
