// A session inside of somebody's program: what it must leave alone there, and where its warnings go.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "integration/job_runner.hpp"

using namespace pliant::test;
namespace fs = std::filesystem;

namespace {

/// Runs a job of one guest_worker, which ends well.
void run_guest(JobRunner& job, const std::string& app) {
  job.config(toy_config("workers = 1", app));
  const Ended ended =
      job.run_json({"--set", fmt::format("run.command=[\"{}/guest_worker\"]", std::string(PLIANT_TEST_BIN_DIR))});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  REQUIRE(ended.summary["steps"] == 2);
  REQUIRE(fs::exists(job.latest() / "guest.txt"));
}

std::string log_of(const JobRunner& job) {
  const fs::path log = job.latest() / "logs" / "rank-0.log";
  REQUIRE(fs::exists(log));
  return read_all(log);
}

}  // namespace

TEST_CASE("a session leaves signal handlers, the signal mask and the environment of its program as they were") {
  JobRunner job;
  run_guest(job, "");
  CHECK(read_all(job.latest() / "guest.txt") == "");
  JobRunner touched;  // a look that finds nothing finds what the program asks for
  run_guest(touched, "touches = true");
  CHECK(read_all(touched.latest() / "guest.txt").find("after start: signal 15: handler") != std::string::npos);
}

TEST_CASE("a warning of a session goes to the program's sink, and without one nowhere: nothing is printed") {
  JobRunner heard;
  run_guest(heard, "hears = true");
  CHECK(read_all(heard.latest() / "heard.txt").find("session: digests.jsonl: Is a directory\n") != std::string::npos);
  CHECK(log_of(heard) == "");
  JobRunner silent;
  run_guest(silent, "");
  CHECK_FALSE(fs::exists(silent.latest() / "heard.txt"));
  CHECK(log_of(silent) == "");
}
