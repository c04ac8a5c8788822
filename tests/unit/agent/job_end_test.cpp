// The end of a job says what happened, and a worker's own exit code or signal where the job ended for that.
#include <doctest/doctest.h>

#include <csignal>
#include <string>

#include "pliant/exit_code.hpp"
#include "unit/agent/job_ends.hpp"
#include "unit/agent/played_job.hpp"

namespace pliant::elastic {
namespace {

/// Workers 0 and 1 have begun and said that they use the API.
void let_begin(PlayedJob& job) {
  for (const WorkerId id : {0, 1}) job.group.started(id);
  for (const WorkerId id : {0, 1}) job.group.received(id, Hello{id});
}

/// They are the two ranks of a group.
void let_form(PlayedJob& job) {
  let_begin(job);
  for (const WorkerId id : {0, 1}) job.group.received(id, Ready{"data"});
  for (const WorkerId id : job.told<WriteData>()) job.group.received(id, DataWritten{});
  REQUIRE(job.join() == Workers{0, 1});
}

GroupOptions two_workers(std::string on_loss) {
  GroupOptions options = options_for(2, 0);
  options.micro_batch_of = {{2, 4}};
  options.on_loss = std::move(on_loss);
  return options;
}

JobEnd end_of(PlayedJob& job) {
  REQUIRE(job.group.job_end().has_value());
  return *job.group.job_end();
}

}  // namespace

TEST_CASE("a job that ends with the loss of a worker has the signal or exit code of that worker") {
  for (const ExitStatus& how : {ExitStatus{true, SIGSEGV}, ExitStatus{false, 7}}) {
    PlayedJob job(two_workers("stop"));
    let_form(job);
    job.group.ended(1, how);
    job.group.ended(0, kKilled);
    const JobEnd end = end_of(job);
    CHECK(has_failed(end));
    REQUIRE(end.worker.has_value());
    CHECK(end.worker->signal == (how.signalled ? SIGSEGV : 0));
    CHECK(end.worker->exit_code == (how.signalled ? 0 : 7));
  }
}

TEST_CASE("a job without a valid world size names the end of the worker that was the last one too many to lose") {
  PlayedJob job(two_workers("shrink"));
  let_form(job);
  job.group.ended(1, {true, SIGKILL});
  job.group.ended(0, {false, 0});
  const JobEnd end = end_of(job);
  CHECK(has_no_world_size(end));
  REQUIRE(end.worker.has_value());
  CHECK(end.worker->signal == SIGKILL);
}

TEST_CASE("a worker that the agent killed has no end of its own: the reason says why") {
  GroupOptions options = two_workers("stop");
  options.start_timeout_s = 1;
  PlayedJob job(options);
  let_begin(job);
  for (; job.killed.empty(); job.seconds += 0.25) job.group.tick();
  job.group.ended(1, kKilled);
  job.group.ended(0, kKilled);
  const JobEnd end = end_of(job);
  CHECK(has_failed(end));
  CHECK_FALSE(end.worker.has_value());
  CHECK(end.reason.find("was not ready 1 s after its start") != std::string::npos);
}

TEST_CASE("a job whose workers all refuse their config or a plugin says which, beside their exit code") {
  for (const ExitCode code : {ExitCode::kUsage, ExitCode::kPlugin, ExitCode::kFailed, ExitCode::kNoWorldSize}) {
    const int number = static_cast<int>(code);
    CAPTURE(number);
    PlayedJob job(two_workers("replace"));
    let_begin(job);
    for (const WorkerId id : {0, 1}) job.group.ended(id, {false, number, "no"});
    const JobEnd end = end_of(job);
    CHECK(has_failed(end, origin_of(number).value_or(Origin::kRun)));
    REQUIRE(end.worker.has_value());
    CHECK(end.worker->exit_code == number);
  }
}

TEST_CASE("a job that is stopped says by which signal, and has no worker") {
  PlayedJob job(two_workers("replace"));
  let_form(job);
  job.group.request_stop(SIGTERM);
  for (const WorkerId id : {0, 1}) job.group.ended(id, {false, 0});
  const JobEnd end = end_of(job);
  CHECK(was_stopped(end, SIGTERM));
  CHECK_FALSE(end.worker.has_value());
}

}  // namespace pliant::elastic
