// Jobs whose ranks come to hold different states: who differs is named and replaced, and what a run did can be
// compared.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "integration/job_runner.hpp"

using namespace pliant::test;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kWrongStep = 5;  ///< the step whose update goes wrong
constexpr int64_t kToySteps = 26;

Ended audit(JobRunner& job, const fs::path& against) {
  return job.run({"audit", job.latest().string(), "--against", against.string(), "--json"});
}

}  // namespace

TEST_CASE("a rank that comes to another state than the majority is named and replaced, and the weights are right") {
  JobRunner well;
  well.config(toy_config("workers = 4\ndeterministic = true", ""));
  REQUIRE(well.run_json().exit_code == 0);
  for (const char* how : {"skip_apply", "flip_bit"}) {
    for (const int rank : {0, 2}) {
      INFO(std::string(how) << " on rank " << rank);
      JobRunner job;
      job.config(
          toy_config("workers = 4\ndeterministic = true\nsnapshot_every = 1", misbehaving(how, rank, kWrongStep)));
      const Ended ended = job.run_json();
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(ended.summary["steps"] == kToySteps);
      CHECK(ended.summary["restarts"] == 1);
      CHECK(ended.summary["samples_used_once"] == 203);
      CHECK(ended.summary["samples_repeated"] == 0);
      CHECK(has(ended.err, fmt::format("rank {} (worker {}) began step {} with another state than the other ranks (",
                                       rank, rank, kWrongStep + 1)));
      CHECK(job.snapshot() == well.snapshot());
      const Ended compared = audit(job, well.latest());
      INFO(compared.err);
      CHECK(compared.exit_code == 0);
      CHECK(compared.summary["against"]["equal"] == true);
      CHECK(compared.summary["against"]["states"] == kToySteps);
    }
  }
}

TEST_CASE(
    "of three ranks the one that differs is named, whatever it did: left out an update, flipped a bit, read other "
    "data") {
  const auto with_three = [](const std::string& app_keys) {
    std::string config = toy_config("workers = 3\ndeterministic = true", app_keys);
    config.replace(config.find("use = \"v0.1\""), 12, "use = \"exact\"");
    config.replace(config.find("[elasticity.\"v0.1\"]"), 19, "[elasticity.exact]");
    return config;
  };
  JobRunner well;
  well.config(with_three("content = 7"));
  REQUIRE(well.run_json().exit_code == 0);
  for (const char* how : {"skip_apply", "flip_bit", "other_data"}) {
    for (const int rank : {0, 1, 2}) {
      INFO(std::string(how) << " on rank " << rank);
      JobRunner job;
      job.config(with_three("content = 7\nturn = \"first\"\n" + misbehaving(how, rank, kWrongStep)));
      const Ended ended = job.run_json();
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(ended.summary["restarts"] == 1);
      CHECK(has(ended.err, std::string(how) == "other_data"
                               ? fmt::format("worker {} reads other data than the other workers", rank)
                               : fmt::format("rank {} (worker {}) began step {} with another state than the other "
                                             "ranks (",
                                             rank, rank, kWrongStep + 1)));
      for (int other = 0; other < 3; ++other) {
        if (other != rank) CHECK_FALSE(has(ended.err, fmt::format("(worker {}) began step", other)));
        if (other != rank) CHECK_FALSE(has(ended.err, fmt::format("worker {} reads other data", other)));
      }
      CHECK(job.snapshot() == well.snapshot());
    }
  }
}

TEST_CASE("a lone rank is compared with nobody: what it does differently, another run tells") {
  JobRunner well;
  well.config(toy_config("workers = 1\ndeterministic = true", ""));
  REQUIRE(well.run_json().exit_code == 0);
  for (const char* how : {"skip_apply", "flip_bit"}) {
    INFO(std::string(how));
    JobRunner job;
    job.config(toy_config("workers = 1\ndeterministic = true\nsnapshot_every = 3", misbehaving(how, 0, kWrongStep)));
    const Ended ended = job.run_json();
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary["restarts"] == 0);
    CHECK(ended.summary["digests"] == kToySteps);
    CHECK_FALSE(has(ended.err, "another state"));
    const Ended compared = audit(job, well.latest());
    CHECK(compared.exit_code == 1);
    CHECK(compared.summary["against"]["step"] == kWrongStep + 1);
  }
}

TEST_CASE("two ranks that differ stop the job, both named, and the disputed state is not saved") {
  for (const char* how : {"flip_bit", "skip_apply"}) {
    for (const int rank : {0, 1}) {
      INFO(std::string(how) << " on rank " << rank);
      JobRunner job;
      job.config(toy_config("workers = 2", misbehaving(how, rank, kWrongStep)));
      const Ended ended = job.run_json();
      INFO(ended.err);
      CHECK(ended.exit_code == 1);
      const std::string reason = ended.summary["reason"];
      CHECK(has(reason,
                fmt::format("step {} is not committed: the ranks began it with different states", kWrongStep + 1)));
      CHECK(has(reason, "rank 0 (worker 0): "));
      CHECK(has(reason, "rank 1 (worker 1): "));
      CHECK(has(reason, "starts from the beginning, because there is no snapshot"));
      CHECK(ended.summary["steps"] == kWrongStep + 1);
      CHECK(ended.summary["snapshot"].is_null());
      CHECK(job.processes_left() == 0);
    }
  }
}

TEST_CASE("what the last step left is compared, too: who differs is named, and another saves") {
  JobRunner well;
  well.config(toy_config("workers = 4\ndeterministic = true", ""));
  REQUIRE(well.run_json().exit_code == 0);
  for (const int rank : {0, 2}) {
    JobRunner job;
    job.config(toy_config("workers = 4\ndeterministic = true\nsnapshot_every = 1",
                          misbehaving("flip_bit", rank, kToySteps - 1)));
    const Ended ended = job.run_json();
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(
        has(ended.err, fmt::format("rank {} (worker {}) ended with another state than the other ranks (", rank, rank)));
    CHECK(job.snapshot() == well.snapshot());
    CHECK(job.ledger("snapshot").back()["state"] == well.ledger("snapshot").back()["state"]);
    CHECK(audit(job, well.latest()).exit_code == 0);
  }
  JobRunner two;
  two.config(
      toy_config("workers = 2\nsnapshot_every = 1\nkeep_snapshots = 1", misbehaving("flip_bit", 1, kToySteps - 1)));
  const Ended ended = two.run_json();
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(has(ended.summary["reason"].get<std::string>(),
            "every step is committed, but the ranks ended with different states and there is no majority (rank 0"));
  CHECK(has(ended.summary["reason"].get<std::string>(), "continues from the newest snapshot, of step 25"));
  const Ended resumed = two.run_json({"--resume", "--set", "app.misbehave=none"});
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(resumed.summary["samples_used_once"] == 203);
}

TEST_CASE("a snapshot of a state that turns out disputed is not what a job is resumed from") {
  JobRunner job;
  job.config(toy_config("workers = 2\nsnapshot_every = 1\nkeep_snapshots = 1", misbehaving("flip_bit", 0, kWrongStep)));
  const Ended ended = job.run_json();
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  const std::string reason = ended.summary["reason"];
  CHECK(has(reason, fmt::format("newest snapshot, of step {}", kWrongStep)));
  const Ended pasted = job.paste(reason);  // whose rank computes otherwise once more, with nothing lost
  INFO(pasted.err);
  CHECK(pasted.exit_code == 1);
  CHECK(pasted.summary["resumed_from"] == kWrongStep);
  CHECK(has(pasted.summary["reason"].get<std::string>(), "the ranks began it with different states"));
  JobRunner well;
  well.config(toy_config("workers = 2", ""));
  REQUIRE(well.run_json().exit_code == 0);
  const Ended resumed = job.run_json({"--resume", "--set", "app.misbehave=none"});
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(job.snapshot() == well.snapshot());
}

TEST_CASE("the summary says what it cost to compare states, and nothing of it where they were not") {
  for (const int every : {1, 0}) {
    JobRunner job;
    job.config(toy_config(fmt::format("workers = 2\ndigest_every = {}", every), ""));
    const Ended ended = job.run_json();
    INFO(ended.err << ended.out);
    REQUIRE(ended.exit_code == 0);
    const double seconds = ended.summary["digest_seconds"];
    CHECK((seconds > 0) == (every == 1));
    CHECK(seconds < ended.summary["wall_seconds"].get<double>());
    const Ended shown = job.run({"run", "pliant.toml"});
    REQUIRE(shown.exit_code == 0);
    CHECK(has(shown.out, fmt::format("at {} steps, ", kToySteps)) == (every == 1));
    CHECK(has(shown.out, " ms each, ") == (every == 1));
    CHECK(has(shown.out, "states compared") == (every == 1));
  }
}

TEST_CASE("arrays that change are named at the step that changed them, whether states are compared then or not") {
  for (const int every : {1, 0}) {
    INFO("digest_every = " << every);
    JobRunner job;
    job.config(toy_config(fmt::format("workers = 2\ndigest_every = {}", every),
                          misbehaving("resize_array", -1, kWrongStep) + "misbehave_always = true\n"));
    const Ended ended = job.run_json();
    INFO(ended.err);
    CHECK(ended.exit_code == 2);
    CHECK(job.ledger("commit").back()["step"] == kWrongStep);
    CHECK(has(ended.err,
              "the state has other arrays: array 1 is weights f32[1003] in this program, weights f32[1002] "
              "in its current arrays"));
    CHECK(job.processes_left() == 0);
  }
  JobRunner one;
  one.config(
      toy_config("workers = 2\ndeterministic = true\ndigest_every = 0", misbehaving("resize_array", 1, kWrongStep)));
  const Ended ended = one.run_json();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 1);
}

TEST_CASE("two arrays of one name end the job before its first step") {
  JobRunner job;
  job.config(toy_config("workers = 2", misbehaving("twin_arrays", -1, 0)));
  const Ended ended = job.run_json();
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "TrainingState::arrays: two arrays have the name 'weights'"));
  CHECK(ended.summary["restarts"] == 0);
}

TEST_CASE("an array in memory that may only be read ends the job before a worker is given a state there") {
  JobRunner job;
  job.config(toy_config("workers = 2", misbehaving("read_only_array", -1, 0)));
  const Ended ended = job.run_json();
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "TrainingState::arrays: 'weights' is read-only memory"));
  CHECK(ended.summary["restarts"] == 0);
}

TEST_CASE("states are compared as often as digest_every says, and never when it says 0") {
  for (const int every : {0, 5}) {
    JobRunner job;
    job.config(toy_config(fmt::format("workers = 2\ndigest_every = {}", every), ""));
    const Ended ended = job.run_json();
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    int64_t taken = 0;
    const auto commits = job.ledger("commit");
    for (size_t step = 0; step < commits.size(); ++step) {
      const bool due = every != 0 && step % 5 == 0;
      CHECK(commits[step].contains("state") == due);
      taken += due ? 1 : 0;
    }
    CHECK(ended.summary["digests"] == taken);
    CHECK(fs::exists(job.latest() / "digests.jsonl") == (every != 0));
  }
}

TEST_CASE("in fast mode the ranks of one world size hold the same state, to the bit") {
  JobRunner job;
  job.config(toy_config("workers = 4", ""));
  const Ended ended = job.run_json();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["digests"] == kToySteps);
  CHECK(ended.summary["restarts"] == 0);
}

TEST_CASE("an audit names the first step and the arrays in which two runs differ, and what one of them lacks") {
  JobRunner one;
  one.config(toy_config("workers = 2\ndeterministic = true", ""));
  REQUIRE(one.run_json().exit_code == 0);
  const Ended plain = one.run({"audit", one.latest().string()});
  INFO(plain.err << plain.out);
  CHECK(plain.exit_code == 0);
  CHECK(has(plain.out, "26 of 26"));
  CHECK(has(plain.out, "at 26 of 26 steps"));

  JobRunner other;
  other.config(toy_config("workers = 2\ndeterministic = true", "").append("\n"));
  REQUIRE(other.run_json({"--set", "lr.base_lr=0.02"}).exit_code == 0);
  const Ended rates = audit(one, other.latest());
  CHECK(rates.exit_code == 1);
  CHECK(rates.summary["against"]["step"] == 0);
  CHECK(has(rates.summary["against"]["how"], "has another learning rate"));

  // A bit flips on both ranks at once: nobody can see it but whoever has another run.
  JobRunner flipped;
  flipped.config(toy_config("workers = 1\ndeterministic = true", misbehaving("flip_bit", 0, kWrongStep)));
  REQUIRE(flipped.run_json().exit_code == 0);
  const Ended states = audit(one, flipped.latest());
  CHECK(states.exit_code == 1);
  CHECK(states.summary["against"]["step"] == kWrongStep + 1);
  CHECK(states.summary["against"]["parts"] == nlohmann::json::array({"weights"}));
  CHECK(has(states.summary["against"]["how"], "begins with another state: weights"));

  JobRunner late;
  late.config(toy_config("workers = 1\ndeterministic = true", misbehaving("flip_bit", 0, kToySteps - 1)));
  REQUIRE(late.run_json().exit_code == 0);
  const Ended ends = audit(one, late.latest());
  CHECK(ends.exit_code == 1);
  CHECK(ends.summary["against"]["step"] == kToySteps - 1);
  CHECK(ends.summary["against"]["parts"] == nlohmann::json::array({"weights"}));
  CHECK(has(ends.summary["against"]["how"], "ends with another state: weights"));

  JobRunner shorter;
  shorter.config(toy_config("workers = 2\ndeterministic = true\nmax_steps = 9", ""));
  REQUIRE(shorter.run_json().exit_code == 0);
  const Ended lengths = audit(one, shorter.latest());
  CHECK(lengths.exit_code == 1);
  CHECK(lengths.summary["against"]["step"] == 9);
  CHECK(has(lengths.summary["against"]["how"], "they have 26 and 9 steps"));

  JobRunner blind;
  blind.config(toy_config("workers = 2\ndeterministic = true\ndigest_every = 0", ""));
  REQUIRE(blind.run_json().exit_code == 0);
  const Ended unknown = audit(one, blind.latest());
  CHECK(unknown.exit_code == 1);
  CHECK(has(unknown.summary["against"]["how"], "no step has a digest of its state in both"));
  CHECK(audit(one, one.latest()).exit_code == 0);

  const Ended nowhere = one.run({"audit", one.latest().parent_path().string()});
  CHECK(nowhere.exit_code == 2);
  CHECK(has(nowhere.err, "has no ledger.jsonl; give the directory of a run"));
  const Ended absent = one.run({"audit", "nowhere"});
  CHECK(absent.exit_code == 2);
  CHECK(has(absent.err, "nowhere is not a directory; give the directory of a run, such as pliant-runs/NAME/latest"));
}
