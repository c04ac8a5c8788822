// Buckets of a gradient that travel while the rest is computed: the same bits, whoever dies or breaks off meanwhile.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "integration/job_runner.hpp"

using namespace pliant::test;

namespace {

constexpr int64_t kStepsOfBuckets = 26;
constexpr const char* kBuckets = "reduce_bucket = 400\n";  // 11 of them
constexpr const char* kInPieces = "backward_pieces = 7\n";
constexpr const char* kRounded = "rounded = true\n";  // sums have the same bits in every order

void check_all_used(const Ended& ended) {
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["steps"] == kStepsOfBuckets);
  CHECK(ended.summary["samples_used_once"] == 203);
  CHECK(ended.summary["samples_repeated"] == 0);
  CHECK(ended.summary["samples_missing"] == 0);
}

/// What a job of `workers` ends with.
std::string state_after(const std::string& run, const std::string& app) {
  JobRunner job;
  job.config(toy_config(run, app));
  check_all_used(job.run({"run", "pliant.toml", "--json"}));
  return job.snapshot();
}

/// Of a job with rounded gradients, however it is run.
const std::string& rounded_reference() {
  static const std::string kState = state_after("workers = 1", kRounded);
  return kState;
}

}  // namespace

TEST_CASE("buckets that travel in backward change no bit, also beside a rank that hands in whole gradients") {
  for (const int workers : {2, 4}) {
    CAPTURE(workers);
    const std::string run = fmt::format("workers = {}\n", workers);
    const std::string whole = state_after(run, "");
    CHECK(state_after(run + kBuckets, kInPieces) == whole);
    CHECK(state_after(run + kBuckets, std::string(kInPieces) + "whole_on = 1\n") == whole);
    CHECK(state_after(run + "reduce_bucket = 0\n", kInPieces) == whole);
  }
}

TEST_CASE("a worker that is killed while a bucket is on its way is replaced, and the weights come out the same") {
  for (const char* const at : {"rank=0,step=9,at=bucket", "rank=2,step=9,at=bucket", "rank=1,step=9,at=reduce"}) {
    JobRunner job;
    job.config(toy_config(std::string("workers = 4\n") + kBuckets, std::string(kInPieces) + kRounded));
    const Ended ended = job.run_json({"--inject", fmt::format("kill:{}", at)});
    INFO(at);
    check_all_used(ended);
    CHECK(ended.summary["restarts"] == 1);
    CHECK(job.snapshot() == rounded_reference());
    CHECK(job.processes_left() == 0);
  }
}

TEST_CASE("a program that asks for the next step in the middle of a backward has all ranks make the step again") {
  JobRunner job;
  job.config(
      toy_config(std::string("workers = 4\n") + kBuckets,
                 std::string(kInPieces) + kRounded + "break_off = \"next\"\nbreak_off_rank = 1\nbreak_off_step = 5\n"));
  const Ended ended = job.run_json();
  check_all_used(ended);
  CHECK(has(ended.err, "rank 1 (worker 1) reported a failure: Session::next was called before Step::commit"));
  CHECK(ended.summary["restarts"] == 0);
  CHECK(ended.summary["generations"] == 2);
  CHECK(job.snapshot() == rounded_reference());
}

TEST_CASE("a program that throws while a bucket is on its way ends, and another worker takes its place") {
  JobRunner job;
  job.config(toy_config(
      std::string("workers = 4\n") + kBuckets,
      std::string(kInPieces) + kRounded + "break_off = \"throw\"\nbreak_off_rank = 0\nbreak_off_step = 5\n"));
  const Ended ended = job.run_json();
  check_all_used(ended);
  CHECK(ended.summary["restarts"] == 1);
  CHECK(job.snapshot() == rounded_reference());
}

TEST_CASE("what is not finite is found in the first bucket and in the last one, and named as without buckets") {
  for (const char* const how : {"nan_in_front", "inf_gradient", "overflow"}) {
    CAPTURE(how);
    std::string said;
    for (const char* const app : {"", kInPieces}) {
      JobRunner job;
      job.config(toy_config(std::string("workers = 2\n") + kBuckets,
                            app + misbehaving(how, 1, 3) + "misbehave_always = true\n"));
      const Ended ended = job.run_json({"--set", "elasticity.\"v0.1\".micro_batch_sizes=[2]"});  // two of each rank
      INFO(ended.err);
      CHECK(ended.exit_code == 1);
      CHECK(ended.summary["steps"] == 3);
      const auto records = job.ledger("not_finite");
      REQUIRE_FALSE(records.empty());
      const std::string reason = records.back()["reason"];
      if (said.empty()) said = reason;
      CHECK(has(reason, "on rank 1"));
      CHECK(reason == said);
    }
  }
  JobRunner job;
  job.config(toy_config(std::string("workers = 2\non_nonfinite = \"skip\"\n") + kBuckets,
                        kInPieces + misbehaving("nan_in_front", 1, 3)));
  const Ended ended = job.run_json();
  check_all_used(ended);
  CHECK(ended.summary["steps_skipped"] == 1);
}

TEST_CASE("a kill in a bucket is refused where there are none") {
  JobRunner job;
  job.config(toy_config("workers = 2\ndeterministic = true"));
  const Ended ended = job.run_json({"--inject", "kill:rank=0,step=3,at=bucket"});
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "at=bucket exists where buckets of the gradient are reduced in backward"));
}
