// Positions that know their epoch: what opening there costs, and what is refused.
#include <doctest/doctest.h>

#include "long_job.hpp"
#include "pliant/batches.hpp"
#include "pliant/error.hpp"

using namespace pliant;
using namespace pliant::test;

namespace {

/// Batches that are in epoch `epoch`, `batch` batches after its begin.
Batches at(const LongJob& job, int64_t epoch, int64_t batch) {
  Batches batches = job.start();
  while (true) {
    const Batch next = batches.next().value();
    if (next.epoch == epoch && next.index + 1 == batch) return batches;
  }
}

std::string refusal(const LongJob& job, const std::string& saved) {
  try {
    Batches batches = job.open(saved);
    static_cast<void>(batches.next());
  } catch (const Error& error) {
    CHECK(error.origin() == Origin::kInput);
    return error.message();
  }
  return {};
}

}  // namespace

TEST_CASE("batches opened at a position go on with the batches that follow it, to the end of the job") {
  const LongJob job;
  for (const int64_t epoch : {0, 3, 5}) {
    Batches first = at(job, epoch, 4);
    Batches opened = job.open(first.save());
    CHECK(opened.next_step() == first.next_step());
    CHECK(opened.fingerprint() == first.fingerprint());
    CHECK(opened.save() == first.save());
    while (const auto batch = first.next()) {
      const auto same = opened.next();
      REQUIRE(same.has_value());
      CHECK(same->epoch == batch->epoch);
      CHECK(same->index == batch->index);
      CHECK(same->ids == batch->ids);
      CHECK(opened.save() == first.save());
    }
    CHECK(!opened.next().has_value());
  }
}

TEST_CASE("a position at the end of an epoch opens at the begin of the next one") {
  const LongJob job;
  Batches first = job.start();
  const int64_t batches = first.epoch(0).batches;
  for (int64_t i = 0; i < batches; ++i) static_cast<void>(first.next());
  Batches opened = job.open(first.save());
  const auto batch = opened.next();
  REQUIRE(batch.has_value());
  CHECK(batch->epoch == 1);
  CHECK(batch->index == 0);
}

TEST_CASE("a position at the end of the job opens, and there is nothing left") {
  const LongJob job;
  Batches first = job.start();
  while (first.next()) {
  }
  Batches opened = job.open(first.save());
  CHECK(!opened.next().has_value());
  CHECK(opened.expected_steps() == first.expected_steps());
}

TEST_CASE("steps before the epoch that batches were opened in are still there, and those after it count on") {
  const LongJob job;
  Batches all = job.start();
  int64_t steps = 0;
  while (all.next()) ++steps;
  Batches opened = job.open(at(job, 4, 2).save());
  CHECK(opened.has_step(0));
  CHECK(opened.has_step(steps - 1));
  CHECK(!opened.has_step(steps));
  CHECK(opened.at_step(3).ids == all.at_step(3).ids);
  const std::vector<int64_t> next = opened.next()->ids;
  CHECK(next == all.at_step(opened.next_step() - 1).ids);
}

TEST_CASE("opening at a position refuses other options by name, also where they change no row") {
  const LongJob job;
  const std::string saved = at(job, 2, 3).save();
  CHECK(refusal(job, saved).empty());
  CHECK(
      refusal(LongJob(replaced(kLongJob, "max_tokens = 40", "max_tokens = 41")), saved).find("other sampler options") !=
      std::string::npos);
  CHECK(refusal(LongJob(replaced(kLongJob, "seed = 3", "seed = 4")), saved).find("saved with seed 3") !=
        std::string::npos);
  LongJob other;
  other.dataset.content = 1;
  CHECK(refusal(other, saved).find("has changed since the position was saved") != std::string::npos);
  LongJob coarser;
  coarser.plan.granule = 7;
  CHECK(refusal(coarser, saved).find("other sampler options") != std::string::npos);
}

TEST_CASE("opening at a position costs one plan, that of its epoch") {
  const LongJob job(replaced(kCounting, "DIR", DATA_TEST_PLUGIN_DIR));
  const std::string saved = at(job, 4, 2).save();
  const Planned planned;
  Batches opened = job.open(saved);
  CHECK(planned.epochs().empty());
  CHECK(opened.next()->epoch == 4);
  CHECK(opened.next()->index == 3);
  CHECK(planned.epochs() == "4 ");
}

TEST_CASE("batches that load a position plan its epoch and none of those before it") {
  const LongJob job(replaced(kCounting, "DIR", DATA_TEST_PLUGIN_DIR));
  const std::string saved = at(job, 4, 2).save();
  const Planned planned;
  Batches loaded = job.start();
  loaded.load(saved);
  CHECK(loaded.next()->epoch == 4);
  CHECK(planned.epochs() == "0 4 ");
}

TEST_CASE("batches that were opened in one epoch load a position of an earlier one at the cost of its plan") {
  const LongJob job(replaced(kCounting, "DIR", DATA_TEST_PLUGIN_DIR));
  const std::string later = at(job, 5, 2).save();
  const std::string earlier = at(job, 3, 4).save();
  const Planned planned;
  Batches opened = job.open(later);
  opened.load(earlier);
  CHECK(opened.save() == earlier);
  CHECK(opened.next()->epoch == 3);
  CHECK(opened.next()->index == 5);
  CHECK(planned.epochs() == "3 ");
}

TEST_CASE("a seek has next give the batch of any step, and plans nothing by itself") {
  const LongJob job(replaced(kCounting, "DIR", DATA_TEST_PLUGIN_DIR));
  Batches all = job.start();
  const Batch third = all.at_step(3);
  const std::string saved = at(job, 4, 2).save();
  const Planned planned;
  Batches opened = job.open(saved);
  const int64_t step = opened.next_step();
  opened.seek(step + 2);
  CHECK(planned.epochs().empty());
  CHECK(opened.next()->index == 4);
  opened.seek(step);
  CHECK(opened.next()->index == 2);
  CHECK(planned.epochs() == "4 ");
  opened.seek(3);
  CHECK(opened.next()->ids == third.ids);
  CHECK(opened.next_step() == 4);
  CHECK_THROWS_AS(opened.seek(-1), Error);
}

TEST_CASE(
    "a sampler that gives other rows than when the position was saved is refused, though its name and options are the "
    "same") {
  const LongJob job(replaced(kCounting, "DIR", DATA_TEST_PLUGIN_DIR));
  const std::string saved = at(job, 4, 2).save();
  REQUIRE(::setenv("TEST_TURN_ROWS", "1", 1) == 0);
  const std::string refused = refusal(job, saved);
  REQUIRE(::unsetenv("TEST_TURN_ROWS") == 0);
  CHECK(refused.find("gives other rows for epoch 4 than when the position was saved") != std::string::npos);
  CHECK(refusal(job, saved).empty());
}
