// Batches: epochs, batches, steps and the fingerprint, with the real samplers from a config.
#include "pliant/batches.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "pliant/error.hpp"
#include "scratch.hpp"

using namespace pliant;
using pliant::test::Scratch;

namespace {

Plan plan_of(int64_t global_batch) {
  Plan plan;
  plan.global_batch = global_batch;
  plan.world_sizes = {{1, global_batch}};
  return plan;
}

Dataset of(std::vector<int32_t> lengths) {
  return {std::move(lengths), {}};
}

const char* const kFixedRandom = R"(
[sampler]
use = "fixed"
[sampler.fixed]
order = "random"
[run]
seed = 3
epochs = 2
)";

Batches batches(const std::string& toml, int64_t global_batch, Dataset dataset) {
  const Scratch scratch;
  return {scratch.config(toml), plan_of(global_batch), std::move(dataset)};
}

std::string message_of(const std::function<void()>& call, Status status) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.status() == status);
    return error.message();
  }
  FAIL("nothing was thrown");
  return {};
}

}  // namespace

TEST_CASE("an epoch ends with a short batch and its sums add up") {
  Batches made =
      batches("[sampler]\nuse = \"fixed\"\n", 4, {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}});
  const EpochSummary summary = made.epoch(0);
  CHECK(summary.rows == 10);
  CHECK(summary.batches == 3);
  CHECK(summary.tokens == 55);
  CHECK(summary.loss_tokens == 45);
  CHECK(summary.longest_row == 10);
  const Batch last = made.batch(0, 2);
  CHECK(last.size == BatchSize{2, 2, 19, 17});
  CHECK(last.ids == std::vector<int64_t>{8, 9});
  CHECK(std::vector<int64_t>(last.row(1).begin(), last.row(1).end()) == std::vector<int64_t>{9});
  uint64_t digest = 0;
  for (int64_t i = 0; i < 3; ++i) digest += made.batch(0, i).digest;
  std::vector<int64_t> all(10);
  std::iota(all.begin(), all.end(), 0);
  CHECK(digest == sample_digest(0, all));
}

TEST_CASE("sequences that are cut into pieces add up over the batches of an epoch") {
  Batches made = batches("[sampler]\nuse = \"concat\"\n[sampler.concat]\nmax_tokens = 10\n", 2,
                         {{7, 26, 4, 9, 1}, {7, 13, 0, 9, 1}});
  const EpochSummary summary = made.epoch(0);
  CHECK(summary.rows == 5);
  CHECK(summary.sequences == 5);
  CHECK(summary.tokens == 47);
  CHECK(summary.truncated == 0);
  BatchSize total;
  uint64_t digest = 0;
  for (int64_t i = 0; i < summary.batches; ++i) {
    const Batch batch = made.batch(0, i);
    CHECK(batch.pieces.size() == batch.ids.size());
    total.rows += batch.size.rows;
    total.sequences += batch.size.sequences;
    total.tokens += batch.size.tokens;
    total.loss_tokens += batch.size.loss_tokens;
    digest += batch.digest;
  }
  CHECK(total == BatchSize{5, 5, 47, 30});
  CHECK(digest == sample_digest(0, std::vector<int64_t>{0, 1, 2, 3, 4}));
  const Batch first = made.batch(0, 0);
  CHECK(first.ids == std::vector<int64_t>{0, 1, 1});
  CHECK(first.row_pieces(1)[0] == Piece{3, 10, false});
}

TEST_CASE("truncated sequences are listed and their lost tokens are counted") {
  Batches made =
      batches("[sampler]\nuse = \"next_fit\"\n[sampler.next_fit]\nmax_tokens = 10\nover_long = \"truncate\"\n", 2,
              of({7, 26, 4, 11}));
  CHECK(made.epoch(0).truncated == 2);
  CHECK(made.epoch(0).tokens_cut == 17);
  CHECK(made.epoch(0).tokens == 31);
  CHECK(made.truncated(0) == std::vector<int64_t>{1, 3});
}

TEST_CASE("without loss token counts every token has a loss") {
  Batches made = batches("[sampler]\nuse = \"fixed\"\n", 2, of({4, 6}));
  CHECK(made.batch(0, 0).size == BatchSize{2, 2, 10, 10});
}

TEST_CASE("a sampler that counts loss tokens gets those of the data set") {
  const std::string config =
      "[sampler]\nuse = \"next_fit\"\n[sampler.next_fit]\nmax_tokens = 10\nbudget_unit = \"loss_tokens\"\n";
  Batches given = batches(config, 4, {{90, 90, 90, 90}, {4, 6, 0, 9}});
  CHECK(given.batch(0, 0).offsets == std::vector<uint64_t>{0, 2, 4});
  Batches all = batches(config, 4, of({4, 6, 1, 10}));
  CHECK(all.batch(0, 0).offsets == std::vector<uint64_t>{0, 2, 3, 4});
}

TEST_CASE("steps run through the epochs in order, each with its own row order") {
  Batches made = batches(kFixedRandom, 4, of(std::vector<int32_t>(10, 5)));
  CHECK(made.expected_steps() == 6);
  std::vector<std::vector<int64_t>> epochs(2);
  for (int64_t step = 0; step < 6; ++step) {
    const Batch batch = made.at_step(step);
    CHECK(batch.epoch == step / 3);
    CHECK(batch.index == step % 3);
    auto& seen = epochs[static_cast<size_t>(batch.epoch)];
    seen.insert(seen.end(), batch.ids.begin(), batch.ids.end());
  }
  CHECK(epochs[0] != epochs[1]);
  for (auto& seen : epochs) {
    std::sort(seen.begin(), seen.end());
    CHECK(seen.size() == 10);
    CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
  }
}

TEST_CASE("a step gives the same batch whenever and in whatever order it is asked for") {
  Batches forward = batches(kFixedRandom, 3, of(std::vector<int32_t>(11, 5)));
  Batches backward = batches(kFixedRandom, 3, of(std::vector<int32_t>(11, 5)));
  std::vector<std::vector<int64_t>> seen;
  for (int64_t step = 0; step < 8; ++step) seen.push_back(forward.at_step(step).ids);
  for (int64_t step = 7; step >= 0; --step) CHECK(backward.at_step(step).ids == seen[static_cast<size_t>(step)]);
}

TEST_CASE("packed epochs may differ in length, and steps still line up") {
  const std::string toml = R"(
[sampler]
use = "seqlen"
[sampler.seqlen]
max_tokens = 100
sequence_picking_order = "random"
strict = true
[run]
epochs = 5
)";
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < 60; ++i) lengths.push_back(1 + (i * 37) % 90);
  Batches made = batches(toml, 3, of(lengths));
  int64_t expected = 0;
  for (int64_t epoch = 0; epoch < 5; ++epoch) expected += made.epoch(epoch).batches;
  CHECK(made.has_step(expected - 1));
  CHECK_FALSE(made.has_step(expected));
  CHECK(made.expected_steps() == expected);
  int64_t step = 0;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    const int64_t count = made.epoch(epoch).batches;
    for (int64_t i = 0; i < count; ++i) CHECK(made.at_step(step++).ids == made.batch(epoch, i).ids);
  }
}

TEST_CASE("max_steps ends the job early and never lengthens it") {
  CHECK(batches(std::string(kFixedRandom) + "max_steps = 4\n", 4, of(std::vector<int32_t>(10, 5))).expected_steps() ==
        4);
  CHECK(batches(std::string(kFixedRandom) + "max_steps = 99\n", 4, of(std::vector<int32_t>(10, 5))).expected_steps() ==
        6);
}

TEST_CASE("of a job of a thousand million epochs one is planned, and its length is told from that") {
  const auto of_epochs = [](const char* epochs) {
    std::string toml = kFixedRandom;
    toml.replace(toml.find("epochs = 2"), 10, std::string("epochs = ") + epochs);
    return batches(toml, 4, of(std::vector<int32_t>(10, 5)));
  };
  Batches made = of_epochs("1000000000");
  CHECK(made.expected_steps() == 3000000000);
  CHECK(made.has_step(5));
  CHECK_FALSE(made.has_step(-1));
  CHECK(made.next()->size.rows == 4);
  CHECK(of_epochs("9223372036854775807").expected_steps() == std::numeric_limits<int64_t>::max());
}

TEST_CASE("the length of a job is the sum of its epochs, or the part of them that max_steps leaves") {
  const auto length_of = [](const std::string& run_keys) {
    const Dataset data{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};
    return batches("[sampler]\nuse = \"fixed\"\n[run]\n" + run_keys, 4, data).job_length();
  };
  const JobLength two = length_of("epochs = 2\n");
  CHECK(two.steps == 6);
  CHECK(two.size == BatchSize{20, 20, 110, 90});
  const JobLength part = length_of("epochs = 100\nmax_steps = 4\n");  // of two epochs, so many as it needs
  CHECK(part.steps == 4);
  CHECK(part.size == BatchSize{20 * 4 / 6, 20 * 4 / 6, 110 * 4 / 6, 90 * 4 / 6});
  CHECK(length_of("epochs = 2\nmax_steps = 99\n").steps == 6);
  const JobLength whole = length_of("epochs = 3\nmax_steps = 9\n");
  CHECK(whole.steps == 9);
  CHECK(whole.size == BatchSize{30, 30, 165, 135});
}

TEST_CASE("the length of a job of more than 64 epochs is told from the first 64, whose lengths differ") {
  const std::string toml =
      "[sampler]\nuse = \"seqlen\"\n[sampler.seqlen]\nmax_tokens = 100\nsequence_picking_order = \"random\"\n"
      "strict = true\n[run]\nepochs = ";
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < 60; ++i) lengths.push_back(1 + (i * 37) % 90);
  Batches planned = batches(toml + "64\n", 3, of(lengths));
  JobLength sum;
  std::set<int64_t> counts;
  for (int64_t epoch = 0; epoch < 64; ++epoch) {
    const EpochSummary& summary = planned.epoch(epoch);
    counts.insert(summary.batches);
    sum.steps += summary.batches;
    sum.size.rows += summary.rows - summary.padding_rows;
    sum.size.sequences += summary.sequences;
    sum.size.tokens += summary.tokens;
    sum.size.loss_tokens += summary.loss_tokens;
  }
  REQUIRE(counts.size() > 1);
  const JobLength exact = planned.job_length();
  CHECK(exact.steps == sum.steps);
  CHECK(exact.size == sum.size);
  const JobLength longer = batches(toml + "640\n", 3, of(lengths)).job_length();
  CHECK(longer.steps == 10 * sum.steps);
  CHECK(longer.size ==
        BatchSize{10 * sum.size.rows, 10 * sum.size.sequences, 10 * sum.size.tokens, 10 * sum.size.loss_tokens});
  CHECK(batches(toml + "5000000000000000000\n", 3, of(lengths)).job_length().steps ==
        static_cast<int64_t>(9e18));  // as many as can be counted
}

TEST_CASE("steps, batches and epochs that do not exist are refused with what exists") {
  Batches made = batches(std::string(kFixedRandom) + "max_steps = 5\n", 4, of(std::vector<int32_t>(10, 5)));
  CHECK(message_of([&] { (void)made.at_step(5); }, Status::kOutOfRange) ==
        "step 5: the job has 5 steps, counted from 0");
  (void)message_of([&] { (void)made.at_step(-1); }, Status::kOutOfRange);
  (void)message_of([&] { (void)made.batch(0, 3); }, Status::kOutOfRange);
  (void)message_of([&] { (void)made.batch(0, -1); }, Status::kOutOfRange);
  (void)message_of([&] { (void)made.epoch(-1); }, Status::kOutOfRange);
  Batches unlimited = batches(kFixedRandom, 4, of(std::vector<int32_t>(10, 5)));
  (void)message_of([&] { (void)unlimited.at_step(6); }, Status::kOutOfRange);
}

TEST_CASE("what a sampler leaves out is listed by reason") {
  const std::string toml = R"(
[sampler]
use = "seqlen"
[sampler.seqlen]
max_tokens = 10
over_long = "drop"
)";
  Batches made = batches(toml, 2, of({5, 11, 5, 10, 10, 3, 12}));
  CHECK(made.epoch(0).dropped ==
        std::map<std::string, int64_t>{{"incomplete_batch", 1}, {"last_sequence", 1}, {"too_long", 2}});
  CHECK(made.dropped_by_reason(0).at("too_long") == std::vector<int64_t>{1, 6});
  CHECK(made.dropped(0) == std::vector<int64_t>{1, 4, 5, 6});
  const EpochSummary& summary = made.epoch(0);
  CHECK(summary.sequences + static_cast<int64_t>(made.dropped(0).size()) == 7);
}

TEST_CASE("data that cannot be trained on is refused as a fault of the input") {
  const Scratch scratch;
  const Config config = scratch.config("[sampler]\nuse = \"seqlen\"\n[sampler.seqlen]\nmax_tokens = 8\n");
  for (const Dataset& dataset : {Dataset{}, of({0}), of({9, 1})}) {
    try {
      Batches made(config, plan_of(1), dataset);
      FAIL("nothing was thrown");
    } catch (const Error& error) {
      CHECK(error.origin() == Origin::kInput);
      CHECK(error.status() == Status::kInvalidArgument);
    }
  }
}

TEST_CASE("the fingerprint is stable and differs when anything that decides the batches does") {
  const Dataset dataset = of({5, 6, 7, 8, 9, 10, 11, 12});
  const uint64_t base = batches(kFixedRandom, 4, dataset).fingerprint();
  CHECK(base == batches(kFixedRandom, 4, dataset).fingerprint());
  CHECK(base == batches(std::string(kFixedRandom) + "workers = 2\n", 4, dataset).fingerprint());

  CHECK(base != batches(kFixedRandom, 2, dataset).fingerprint());
  CHECK(base != batches(kFixedRandom, 4, of({5, 6, 7, 8, 9, 10, 11, 13})).fingerprint());
  CHECK(base != batches(kFixedRandom, 4, {dataset.lengths, {1, 1, 1, 1, 1, 1, 1, 1}}).fingerprint());
  CHECK(base !=
        batches("[sampler]\nuse = \"fixed\"\n[sampler.fixed]\norder = \"random\"\n[run]\nseed = 4\n", 4, dataset)
            .fingerprint());
  CHECK(base != batches("[sampler]\nuse = \"fixed\"\n[run]\nseed = 3\n", 4, dataset).fingerprint());
  CHECK(base !=
        batches("[sampler]\nuse = \"fixed\"\n[sampler.fixed]\norder = \"random\"\nmax_tokens = 50\n[run]\nseed = 3\n",
                4, dataset)
            .fingerprint());
  CHECK(base !=
        batches("[sampler]\nuse = \"seqlen\"\n[sampler.seqlen]\nmax_tokens = 12\nstrict = true\n[run]\nseed = 3\n", 4,
                dataset)
            .fingerprint());
}

TEST_CASE("batches can be moved") {
  Batches first = batches(kFixedRandom, 4, of(std::vector<int32_t>(10, 5)));
  const std::vector<int64_t> ids = first.at_step(0).ids;
  Batches second = std::move(first);
  CHECK(second.at_step(3).epoch == 1);
  CHECK(second.at_step(0).ids == ids);
}
