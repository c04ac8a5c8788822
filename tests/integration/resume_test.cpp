// Stopped jobs go on where they were, at another number of workers too; so do jobs whose agent died.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/result.hpp"
#include "elastic/checked_stream.hpp"
#include "elastic/ledger.hpp"
#include "elastic/snapshot.hpp"
#include "integration/job_runner.hpp"

using namespace pliant::test;

namespace {

std::string whole_run() {
  JobRunner job;
  job.config(toy_config("workers = 2\ndeterministic = true"));
  REQUIRE(job.run({"run", "pliant.toml", "--json"}).exit_code == 0);
  return job.snapshot();
}

/// A snapshot without arrays as an older release wrote it: docs in core/src/elastic/snapshot.cpp.
std::string in_format(int version, const std::filesystem::path& file) {
  std::ostringstream state;
  const auto header = pliant::or_throw(pliant::elastic::read_snapshot(
      file, [&state](std::istream& in, const pliant::elastic::SnapshotHeader&) { state << in.rdbuf(); }));
  REQUIRE(header.arrays.empty());
  const auto number = [](uint64_t value, size_t bytes = 8) {
    std::string made;
    for (size_t i = 0; i < bytes; ++i) made += static_cast<char>(value >> (8 * i));
    return made;
  };
  const auto text = [&](const std::string& words) { return number(words.size()) + words; };
  std::string head = number(static_cast<uint64_t>(header.step)) + text(header.fingerprint) + text(header.lr_state);
  if (version >= 2) head += text(header.run_id);
  if (version >= 3) head += text("");
  std::string bytes = "\x89PLIANT\n" + number(static_cast<uint64_t>(version), 4) + number(head.size(), 4) + head;
  bytes += state.str() + number(state.str().size());
  pliant::elastic::Crc64 crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return bytes + number(crc.checksum());
}

}  // namespace

TEST_CASE(
    "one Ctrl-C commits, snapshots and ends with 130 and --resume finishes at another size with the same weights") {
  JobRunner job;
  job.config(toy_config("workers = 4\ndeterministic = true", "step_ms = 20"));
  const pid_t pid = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(pid, 6));
  ::kill(pid, SIGINT);
  const Ended stopped = job.wait(pid);
  INFO(stopped.err);
  CHECK(stopped.exit_code == 130);
  CHECK(stopped.summary["outcome"] == "stopped");
  CHECK(stopped.summary["world_size"] == 4);
  CHECK(stopped.summary["shrunk_by"].is_null());
  CHECK(stopped.summary["samples_repeated"] == 0);
  CHECK(stopped.summary["samples_missing"] == 0);
  CHECK(job.processes_left() == 0);
  const int64_t done = stopped.summary["steps"];
  CHECK(done >= 6);
  CHECK(done < 26);
  for (const char* workers : {"2"}) {
    const Ended resumed = job.run({"run", "pliant.toml", "--json", "--resume", "--workers", workers});
    INFO(resumed.err);
    REQUIRE(resumed.exit_code == 0);
    CHECK(resumed.summary["resumed_from"] == done);
    CHECK(resumed.summary["samples_used_once"] == 203);
    CHECK(job.snapshot() == whole_run());
  }
}

TEST_CASE("a second Ctrl-C ends at once and leaves no process") {
  JobRunner job;
  job.config(toy_config("workers = 4", "step_ms = 400"));
  const pid_t pid = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(pid, 1));
  ::kill(pid, SIGINT);
  ::kill(pid, SIGTERM);
  const Ended ended = job.wait(pid);
  CHECK((ended.exit_code == 130 || ended.exit_code == 143));
  CHECK(job.processes_left() == 0);
}

TEST_CASE("when the agent dies its workers die, and the run can be resumed without a sample lost or repeated") {
  for (const char* at : {"vote", "commit"}) {
    JobRunner job;
    job.config(toy_config("workers = 4\ndeterministic = true\nsnapshot_every = 4"));
    const Ended killed = job.run({"run", "pliant.toml", "--inject", fmt::format("kill:agent,step=10,at={}", at)});
    CHECK(killed.exit_code == 128 + SIGKILL);
    job.wait_for_processes();
    const Ended resumed = job.run({"run", "pliant.toml", "--json", "--resume"});
    INFO(resumed.err);
    REQUIRE(resumed.exit_code == 0);
    CHECK(resumed.summary["resumed_from"] == 8);
    CHECK(resumed.summary["samples_used_once"] == 203);
    CHECK(resumed.summary["samples_repeated"] == 0);
    CHECK(job.snapshot() == whole_run());
  }
}

TEST_CASE("a resume with other data or another plan is refused and changes nothing") {
  JobRunner job;
  job.config(toy_config("workers = 2\nsnapshot_every = 2", "step_ms = 20"));
  const pid_t pid = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(pid, 4));
  ::kill(pid, SIGINT);
  REQUIRE(job.wait(pid).exit_code == 130);
  const std::string before = job.snapshot();
  const std::string config = pliant::test::read_all(job.latest() / "config.toml");
  const Ended other_seed = job.run({"run", "pliant.toml", "--resume", "--set", "run.seed=7"});
  INFO(other_seed.err);
  CHECK(other_seed.exit_code == 2);
  CHECK(other_seed.err.find("cannot resume") != std::string::npos);
  CHECK(other_seed.err.find("run.seed = 7 (was 1)") != std::string::npos);
  const Ended other_order =
      job.run({"run", "pliant.toml", "--resume", "--set", "sampler.fixed.order=seqlen", "--set", "run.workers=1"});
  INFO(other_order.err);
  CHECK(other_order.exit_code == 2);
  CHECK(other_order.err.find(": sampler.fixed.order = \"seqlen\" (was \"random\"). ") != std::string::npos);
  const Ended other_sampler = job.run(
      {"run", "pliant.toml", "--resume", "--set", "sampler.use=next_fit", "--set", "sampler.next_fit.max_tokens=99"});
  CHECK(other_sampler.exit_code == 2);
  CHECK(other_sampler.err.find(": sampler.use = \"next_fit\" (was \"fixed\"). ") != std::string::npos);
  const Ended other_content = job.run({"run", "pliant.toml", "--resume", "--set", "app.content=5"});
  CHECK(other_content.exit_code == 2);
  CHECK(other_content.err.find("its data set or the version of its sampler has changed") != std::string::npos);
  const Ended other_batch =
      job.run({"run", "pliant.toml", "--resume", "--set", "elasticity.\"v0.1\".max_train_batch_size=16"});
  CHECK(other_batch.exit_code == 2);
  CHECK(other_batch.err.find("pinned to global batch 8") != std::string::npos);
  const Ended other_lengths = job.run({"run", "pliant.toml", "--resume", "--set", "app.sequences=190"});
  CHECK(other_lengths.exit_code == 2);
  CHECK(other_lengths.err.find("it has 190 sequences, but this job began with other data (203, in ") !=
        std::string::npos);
  CHECK(job.snapshot() == before);
  CHECK(pliant::test::read_all(job.latest() / "config.toml") == config);
  CHECK(job.run({"run", "pliant.toml", "--resume"}).exit_code == 0);
}

TEST_CASE(
    "a resume with another learning-rate rule is refused by the names of both, and a balancer may be another one") {
  JobRunner job;
  job.config(toy_config("workers = 2\ndeterministic = true\nsnapshot_every = 2", "step_ms = 20"));
  const pid_t pid = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(pid, 4));
  ::kill(pid, SIGINT);
  REQUIRE(job.wait(pid).exit_code == 130);
  const std::string before = job.snapshot();
  const std::string config = pliant::test::read_all(job.latest() / "config.toml");
  const Ended refused =
      job.run({"run", "pliant.toml", "--resume", "--set", "lr.use=linear", "--set", "balancer.use=lpt"});
  INFO(refused.err);
  CHECK(refused.exit_code == 2);
  CHECK(has(refused.err, "the saved learning-rate state belongs to rule 'sqrt', but [lr] uses 'linear'"));
  CHECK(job.snapshot() == before);
  CHECK(pliant::test::read_all(job.latest() / "config.toml") == config);
  const Ended resumed = job.run({"run", "pliant.toml", "--resume", "--set", "balancer.use=lpt"});
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(job.snapshot() == whole_run());
}

TEST_CASE("a resume over a ledger that used other samples than the plan gives is refused with the step") {
  JobRunner job;
  job.config(toy_config("workers = 2\nsnapshot_every = 2", "step_ms = 20"));
  const pid_t pid = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(pid, 4));
  ::kill(pid, SIGINT);
  REQUIRE(job.wait(pid).exit_code == 130);
  forge_ledger(job.latest() / "ledger.jsonl", [](pliant::elastic::CommitRecord& commit) {
    if (commit.step == 2) commit.digest ^= 1;
  });
  const Ended refused = job.run({"run", "pliant.toml", "--resume"});
  INFO(refused.err);
  CHECK(refused.exit_code == 1);
  CHECK(refused.err.find("step 2 of the ledger (epoch 0, batch 2) differs from the plan") != std::string::npos);
}

TEST_CASE("a job that an older release stopped goes on from its snapshot, also where the state is arrays by now") {
  for (const int format : {1, 2, 3}) {
    INFO("format " << format);
    JobRunner job;
    job.config(toy_config("workers = 2\ndeterministic = true"));
    const Ended stopped = job.run_json({"--set", "run.max_steps=9", "--set", "app.arrays=false"});
    INFO(stopped.err);
    REQUIRE(stopped.exit_code == 0);
    const auto file = job.latest() / "snapshots/step-00000009.snapshot";
    pliant::test::write_all(file, in_format(format, file));
    const Ended resumed = job.run_json({"--resume"});
    INFO(resumed.err);
    REQUIRE(resumed.exit_code == 0);
    CHECK(resumed.summary["resumed_from"] == 9);
    CHECK(resumed.summary["samples_used_once"] == 203);
    CHECK(job.snapshot() == whole_run());
  }
}

TEST_CASE("nothing to resume is said with what to do") {
  JobRunner job;
  job.config(toy_config("workers = 2"));
  const Ended ended = job.run({"run", "pliant.toml", "--resume"});
  CHECK(ended.exit_code == 2);
  CHECK(ended.err.find("nothing to resume") != std::string::npos);
}

TEST_CASE("every stopped run says how to go on, and what it says goes on, and a finished one says nothing") {
  JobRunner job;
  job.config(toy_config("workers = 2", "step_ms = 20"));
  const pid_t pid = job.start({"run", "pliant.toml"});
  REQUIRE(job.wait_for_commits(pid, 2));
  ::kill(pid, SIGINT);
  const Ended stopped = job.wait(pid);
  REQUIRE(stopped.exit_code == 130);
  const size_t at = stopped.out.find("\nto go on ");
  INFO(stopped.out);
  REQUIRE(at != std::string::npos);
  const size_t command = stopped.out.find("pliant run ", at);
  const Ended resumed = job.paste("`" + stopped.out.substr(command, stopped.out.find('\n', command) - command) + "`");
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["samples_used_once"] == 203);
  CHECK(resumed.summary["resume"].is_null());
}

TEST_CASE(
    "a snapshot that the config does not fit ends a resume at once, changes no config, and what it says goes on") {
  constexpr const char* kSaid = "the state has other arrays: array 1 is low f32[";
  JobRunner job;
  job.config(toy_config("workers = 2", "step_ms = 20"));
  const pid_t pid = job.start({"run", "pliant.toml"});
  REQUIRE(job.wait_for_commits(pid, 2));
  ::kill(pid, SIGINT);
  REQUIRE(job.wait(pid).exit_code == 130);
  const std::string config = pliant::test::read_all(job.latest() / "config.toml");
  const Ended refused = job.run({"run", "pliant.toml", "--json", "--resume", "--set", "app.halved=true"});
  INFO(refused.err);
  CHECK(refused.exit_code == 2);
  CHECK(has(refused.summary["reason"], kSaid));
  CHECK(has(refused.err, kSaid));
  CHECK(refused.err.find(kSaid) == refused.err.rfind(kSaid));
  CHECK_FALSE(has(refused.err, "warning: "));
  CHECK(refused.summary["restarts"] == 0);
  CHECK(refused.summary["generations"] == 1);
  CHECK(pliant::test::read_all(job.latest() / "config.toml") == config);
  REQUIRE(refused.summary["resume"].is_string());
  const Ended resumed = job.paste("`" + refused.summary["resume"].get<std::string>() + "`");
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["samples_used_once"] == 203);
  CHECK(job.run({"audit", (job.latest()).string()}).exit_code == 0);
}

TEST_CASE("a failed start does not hide the run before it: --resume goes on with that, and says what it passes over") {
  JobRunner job;
  job.config(toy_config("workers = 2", "step_ms = 20"));
  const pid_t pid = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(pid, 2));
  ::kill(pid, SIGINT);
  const Ended stopped = job.wait(pid);
  REQUIRE(stopped.exit_code == 130);
  const Ended failed = job.run_json({"--set", "app.misbehave=usage_at_start", "--set", "app.misbehave_rank=-1"});
  REQUIRE(failed.exit_code == 2);
  CHECK(failed.summary["resume"].is_null());
  const Ended resumed = job.run_json({"--resume"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(resumed.summary["directory"] == stopped.summary["directory"]);
  CHECK(resumed.summary["resumed_from"] == stopped.summary["steps"]);
  CHECK(has(resumed.err, "the run " + failed.summary["directory"].get<std::string>() + " is passed over"));
}

TEST_CASE("what is advised to a job that resumes keeps its batch, and is taken when it is pasted") {
  JobRunner job;
  job.config(toy_config("workers = 2", "step_ms = 20"));
  const pid_t pid = job.start({"run", "pliant.toml", "--json"});
  REQUIRE(job.wait_for_commits(pid, 2));
  ::kill(pid, SIGINT);
  REQUIRE(job.wait(pid).exit_code == 130);
  const std::vector<std::string> command{"run", "pliant.toml", "--json", "--resume", "--workers", "3"};
  const Ended refused = job.run(command);
  INFO(refused.err);
  REQUIRE(refused.exit_code == 2);
  std::istringstream lines(refused.err);
  int advised = 0;
  for (std::string line; std::getline(lines, line);) {
    const size_t sets = line.find("help: --set ");
    if (sets == std::string::npos) continue;
    CAPTURE(line);
    CHECK(has(line, "keeps the job's batch: global batch 8, "));
    std::vector<std::string> pasted = command;
    for (const std::string& word : words_of_shell(line.substr(sets + 6, line.find(" makes it valid") - sets - 6))) {
      pasted.push_back(word);
    }
    JobRunner copy;
    std::filesystem::copy(job.folder() / "pliant-runs", copy.folder() / "pliant-runs",
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    copy.config(toy_config("workers = 2"));
    const Ended taken = copy.run(pasted);
    INFO(taken.err);
    CHECK(taken.exit_code == 0);
    CHECK(taken.summary["global_batch"] == 8);
    ++advised;
  }
  CHECK(advised > 0);
}

TEST_CASE("a damaged newest snapshot is named and the one before is taken") {
  JobRunner job;
  job.config(toy_config("workers = 2\ndeterministic = true\nsnapshot_every = 7"));
  REQUIRE(job.run({"run", "pliant.toml", "--json", "--inject", "kill:agent,step=16"}).exit_code == 128 + SIGKILL);
  const auto newest = job.latest() / "snapshots/step-00000014.snapshot";
  std::string bytes = pliant::test::read_all(newest);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  pliant::test::write_all(newest, bytes);
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--resume"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.err.find("step-00000014.snapshot") != std::string::npos);
  CHECK(ended.summary["resumed_from"] == 7);
  CHECK(ended.summary["samples_used_once"] == 203);
}

TEST_CASE("a size at which rule 0.2 answers another batch is refused to a job that runs") {
  JobRunner job;
  job.config(toy_config("workers = 4\nsnapshot_every = 2", "step_ms = 20"));
  const std::vector<std::string> rule{"--set", "elasticity.use=\"v0.2\"",
                                      "--set", "elasticity.\"v0.2\".max_train_batch_size=16",
                                      "--set", "elasticity.\"v0.2\".micro_batch_sizes=[4]"};
  const auto with_rule = [&rule](std::vector<std::string> words) {
    words.insert(words.end(), rule.begin(), rule.end());
    return words;
  };
  const pid_t pid = job.start(with_rule({"run", "pliant.toml", "--json"}));
  REQUIRE(job.wait_for_commits(pid, 2));
  ::kill(pid, SIGINT);
  REQUIRE(job.wait(pid).exit_code == 130);
  const Ended drifted = job.run(with_rule({"run", "pliant.toml", "--resume", "--workers", "3"}));
  CHECK(drifted.exit_code == 2);
  CHECK(drifted.err.find(
            "the job is pinned to global batch 16 in granules of 4, and this config at 3 workers plans 12") !=
        std::string::npos);
  CHECK(has(drifted.err, "\n  help: --workers 2 keeps the job's batch\n"));
  CHECK(job.run(with_rule({"run", "pliant.toml", "--resume", "--workers", "2"})).exit_code == 0);
}
