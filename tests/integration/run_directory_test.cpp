// Run directories that are lost, mixed up, half made or named by a link.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/result.hpp"
#include "elastic/ledger.hpp"
#include "integration/job_runner.hpp"

using namespace pliant::test;
namespace fs = std::filesystem;

namespace {

bool ended_with(const Ended& ended, const std::string& words) {
  return ended.err.find(words) != std::string::npos;
}

/// `pliant run` with `more`, to `steps` steps.
Ended run_to(JobRunner& job, int64_t steps, std::vector<std::string> more = {}) {
  std::vector<std::string> words{"run", "pliant.toml", "--json", "--set", fmt::format("run.max_steps={}", steps)};
  words.insert(words.end(), more.begin(), more.end());
  return job.run(words);
}

/// A run of `steps` steps that ended well, and its directory.
fs::path finished_run(JobRunner& job, int64_t steps) {
  const Ended ended = run_to(job, steps);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  return job.latest();
}

const char* const kStep4 = "snapshots/step-00000004.snapshot";
const char* const kStep8 = "snapshots/step-00000008.snapshot";

}  // namespace

TEST_CASE("a run that was resumed by the path of `latest` stays in its directory when that link moves on") {
  JobRunner job;
  job.config(toy_config("workers = 2\nsnapshot_every = 2", "step_ms = 20"));
  const fs::path own = finished_run(job, 4);
  const fs::path latest = own.parent_path() / "latest";
  const pid_t pid = job.start({"run", "pliant.toml", "--json", "--resume", latest.string()});
  REQUIRE(job.wait_for_commits(pid, 5));
  const fs::path other = own.parent_path() / "other";
  fs::create_directories(other / "snapshots");
  fs::create_directory_symlink("other", own.parent_path() / "next");
  fs::rename(own.parent_path() / "next", latest);
  ::kill(pid, SIGINT);
  const Ended stopped = job.wait(pid);
  INFO(stopped.err);
  CHECK(stopped.exit_code == 130);
  CHECK(stopped.summary["directory"] == own.string());
  CHECK(fs::is_empty(other / "snapshots"));
  CHECK(fs::exists(own / stopped.summary["snapshot"].get<std::string>()));
}

TEST_CASE("a snapshot of another run is refused by the names of both") {
  JobRunner job;
  job.config(toy_config("workers = 2"));
  const fs::path one = finished_run(job, 4);
  const fs::path two = finished_run(job, 4);
  REQUIRE(one != two);
  fs::copy_file(one / kStep4, two / kStep4, fs::copy_options::overwrite_existing);
  const Ended refused = run_to(job, 8, {"--resume"});
  INFO(refused.err);
  CHECK(refused.exit_code == 2);
  CHECK(ended_with(refused,
                   fmt::format("is that of run {}, not of {}", one.filename().string(), two.filename().string())));
}

TEST_CASE("a step that is snapshotted twice counts once against keep_snapshots") {
  JobRunner job;
  job.config(toy_config("workers = 2\nkeep_snapshots = 2"));
  const fs::path run = finished_run(job, 4);
  {
    auto ledger = pliant::or_throw(pliant::elastic::Ledger::open(run / "ledger.jsonl"));
    REQUIRE(ledger.append(pliant::elastic::SnapshotRecord{4, kStep4}).has_value());
  }
  REQUIRE(run_to(job, 8, {"--resume"}).exit_code == 0);
  CHECK(fs::exists(run / kStep4));
  CHECK(fs::exists(run / kStep8));
}

TEST_CASE("a job whose run directory or ledger is removed ends with a snapshot in a fresh one, which can be resumed") {
  for (const char* lost : {"", "ledger.jsonl"}) {
    CAPTURE(lost);
    JobRunner job;
    job.config(toy_config("workers = 2\nsnapshot_every = 4", "step_ms = 20"));
    const pid_t pid = job.start({"run", "pliant.toml", "--json"});
    REQUIRE(job.wait_for_commits(pid, 5));
    const fs::path run = job.latest();
    const std::string rescued = run.string() + "-rescued";
    fs::rename(run / lost, job.folder() / "moved away");
    const Ended ended = job.wait(pid);
    INFO(ended.err);
    CHECK(ended.exit_code == 1);
    CHECK(ended.summary["outcome"] == "failed");
    CHECK(ended.summary["directory"] == rescued);
    CHECK(ended_with(ended, fmt::format("the run directory {} is gone", run.string())));
    CHECK(ended_with(ended, fmt::format("--resume {}", rescued)));
    CHECK(job.processes_left() == 0);
    const int64_t steps = ended.summary["steps"];
    CHECK(steps < 26);
    const Ended resumed = job.run({"run", "pliant.toml", "--json", "--resume", rescued, "--set", "app.step_ms=0"});
    INFO(resumed.err);
    REQUIRE(resumed.exit_code == 0);
    CHECK(resumed.summary["resumed_from"] == steps);
    CHECK(resumed.summary["samples_used_once"] == 203);
  }
}

TEST_CASE("a job whose ledger is cut off ends with a snapshot and all records in a fresh directory") {
  JobRunner job;
  job.config(toy_config("workers = 2\nsnapshot_every = 4", "step_ms = 20"));
  const pid_t pid = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(pid, 5));
  const fs::path run = job.latest();
  write_all(run / "ledger.jsonl", "");
  const Ended ended = job.wait(pid);
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(ended_with(
      ended, fmt::format("the run directory {} is damaged: another program has changed the ledger", run.string())));
  const std::string rescued = run.string() + "-rescued";
  const Ended resumed = job.run({"run", "pliant.toml", "--json", "--resume", rescued, "--set", "app.step_ms=0"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["resumed_from"] == ended.summary["steps"]);
  CHECK(resumed.summary["samples_used_once"] == 203);
}

TEST_CASE("what a joiner reads in the run directory is written again when it was removed or damaged") {
  JobRunner job;
  job.config(toy_config("workers = 2", "step_ms = 20"));
  const pid_t pid = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(pid, 3));
  const fs::path run = job.latest();
  fs::remove_all(run / "logs");
  fs::remove(run / "config.toml");
  write_all(run / "job.json", "{}");
  fs::resize_file(run / "dataset.bin", 40);
  ::kill(job.worker(1), SIGKILL);
  const Ended ended = job.wait(pid);
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 1);
  CHECK(ended.summary["generations"] == 3);
  CHECK(ended_with(ended, "config.toml was removed or changed: written again"));
  CHECK(ended_with(ended, "dataset.bin was removed or changed: written again"));
  CHECK(ended.summary["samples_used_once"] == 203);
}

TEST_CASE("a foreign program whose run directory is removed goes on, and the job says what is lost") {
  JobRunner job;
  job.config("config_version = 1\n[run]\nname = \"toy\"\nworkers = 1\n");
  const std::string wait = "while [ ! -e " + (job.folder() / "go").string() + " ]; do sleep 0.01; done";
  const pid_t pid = job.start({"run", "pliant.toml", "--json", "--", "sh", "-c", wait});
  REQUIRE(job.wait_until(pid, [&] { return job.worker(0) != 0; }));
  fs::remove_all(job.latest());
  REQUIRE(job.wait_for_words(pid, "was removed, moved or replaced: the output of workers is lost"));
  write_all(job.folder() / "go", "");
  CHECK(job.wait(pid).exit_code == 0);
}

TEST_CASE("pipes in a run directory are refused or removed, and waited for by nobody") {
  JobRunner job;
  job.config(toy_config("workers = 2\nsnapshot_every = 2", "step_ms = 5"));
  const fs::path run = finished_run(job, 4);
  fs::remove(run / "config.toml");
  for (const char* pipe : {"config.toml", "snapshots/x.partial", "snapshots/step-00000008.snapshot.partial"})
    REQUIRE(::mkfifo((run / pipe).c_str(), 0600) == 0);
  const Ended resumed = run_to(job, 8, {"--resume"});
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(resumed.summary["restarts"] == 0);
  fs::remove(run / "ledger.jsonl");
  REQUIRE(::mkfifo((run / "ledger.jsonl").c_str(), 0600) == 0);
  const Ended refused = run_to(job, 12, {"--resume"});
  CHECK(refused.exit_code != 0);
  CHECK(ended_with(refused, "ledger.jsonl: it is not a regular file"));
}

#ifndef __SANITIZE_ADDRESS__  // UBSan needs descriptors to look at an object's type
TEST_CASE("a worker that cannot be started for lack of descriptors is started when there are some again") {
  JobRunner job;
  job.config(toy_config("workers = 2", "step_ms = 20"));
  const pid_t pid = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(pid, 3));
  rlimit before{};
  REQUIRE(::prlimit(pid, RLIMIT_NOFILE, nullptr, &before) == 0);
  const rlimit none{3, before.rlim_max};
  REQUIRE(::prlimit(pid, RLIMIT_NOFILE, &none, nullptr) == 0);
  ::kill(job.worker(1), SIGKILL);
  REQUIRE(job.wait_for_words(pid, "retrying"));
  REQUIRE(::prlimit(pid, RLIMIT_NOFILE, &before, nullptr) == 0);
  const Ended ended = job.wait(pid);
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 1);
  CHECK(ended.summary["samples_used_once"] == 203);
}
#endif

TEST_CASE("a resume without the ledger of a run that has snapshots is refused, and names it") {
  JobRunner job;
  job.config(toy_config("workers = 2"));
  const fs::path run = finished_run(job, 4);
  fs::remove(run / "ledger.jsonl");
  const Ended refused = run_to(job, 8, {"--resume"});
  INFO(refused.err);
  CHECK(refused.exit_code == 2);
  CHECK(ended_with(refused, "its ledger ledger.jsonl is missing, although it has snapshots"));
  CHECK_FALSE(fs::exists(run / "ledger.jsonl"));
}

TEST_CASE("a run whose agent died before the ledger held anything, or whose folders are gone, can be resumed") {
  JobRunner job;
  job.config(toy_config("workers = 2"));
  const fs::path run = finished_run(job, 4);
  fs::remove_all(run / "logs");
  fs::remove_all(run / "snapshots");
  write_all(run / "ledger.jsonl", "");
  const Ended resumed = run_to(job, 8, {"--resume"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["steps"] == 8);
  CHECK(fs::exists(run / "logs" / "rank-0.log"));
}

TEST_CASE("a resume to fewer steps than are committed has nothing to do and says so") {
  JobRunner job;
  job.config(toy_config("workers = 2"));
  static_cast<void>(finished_run(job, 6));
  const Ended resumed = run_to(job, 3, {"--resume"});
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(resumed.summary["outcome"] == "finished");
  CHECK(resumed.summary["steps"] == 6);
  CHECK(ended_with(resumed, "6 steps are committed, more than the job has now: nothing to do"));
}
