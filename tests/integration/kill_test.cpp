// Workers die at every point of a step; the job ends as if nothing had happened.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "integration/job_runner.hpp"

using namespace pliant::test;

namespace {

constexpr int64_t kSteps = 26;

void check_whole(const Ended& ended) {
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  REQUIRE(ended.summary.is_object());
  CHECK(ended.summary["steps"] == kSteps);
  CHECK(ended.summary["samples_expected"] == 203);
  CHECK(ended.summary["samples_used_once"] == 203);
  CHECK(ended.summary["samples_repeated"] == 0);
  CHECK(ended.summary["samples_missing"] == 0);
}

// The digests and losses of the commits, without what depends on the history.
std::vector<std::string> batches_of(const JobRunner& job) {
  std::vector<std::string> batches;
  for (const auto& record : job.ledger("commit"))
    batches.push_back(record["digest"].get<std::string>() + record["batch"].dump());
  return batches;
}

struct Reference {
  std::string snapshot;
  std::vector<std::string> batches;
};

// One worker, undisturbed, bit for bit.
const Reference& reference() {
  static const Reference kReference = [] {
    JobRunner job;
    job.config(toy_config("workers = 1\ndeterministic = true"));
    check_whole(job.run({"run", "pliant.toml", "--json"}));
    return Reference{job.snapshot(), batches_of(job)};
  }();
  return kReference;
}

}  // namespace

TEST_CASE("in deterministic mode the weights are bitwise the same at 1, 2 and 4 workers") {
  for (const int workers : {2, 4}) {
    JobRunner job;
    job.config(toy_config(fmt::format("workers = {}\ndeterministic = true", workers)));
    check_whole(job.run({"run", "pliant.toml", "--json"}));
    CHECK(job.snapshot() == reference().snapshot);
    CHECK(batches_of(job) == reference().batches);
  }
}

TEST_CASE("without it the loss agrees to float rounding at 1, 2 and 4 workers") {
  std::vector<std::vector<double>> curves;
  for (const int workers : {1, 2, 4}) {
    JobRunner job;
    job.config(toy_config(fmt::format("workers = {}", workers)));
    check_whole(job.run({"run", "pliant.toml", "--json"}));
    std::vector<double> curve;
    for (const auto& record : job.ledger("commit")) curve.push_back(record["loss"].get<double>());
    curves.push_back(curve);
  }
  for (size_t i = 0; i < curves[0].size(); ++i) {
    CHECK(curves[1][i] == doctest::Approx(curves[0][i]).epsilon(1e-5));
    CHECK(curves[2][i] == doctest::Approx(curves[0][i]).epsilon(1e-5));
  }
}

TEST_CASE("a worker killed at any point of a step is replaced and the weights come out bitwise the same") {
  for (const char* at : {"forward", "reduce", "vote", "commit", "apply"}) {
    for (const int rank : {0, 2}) {
      JobRunner job;
      job.config(toy_config("workers = 4\ndeterministic = true"));
      const Ended ended =
          job.run({"run", "pliant.toml", "--json", "--inject", fmt::format("kill:rank={},step=9,at={}", rank, at)});
      INFO("at " << at << " rank " << rank << "\n" << ended.err);
      check_whole(ended);
      CHECK(ended.summary["generations"].get<int>() >= 2);
      CHECK(ended.summary["restarts"] == 1);
      CHECK(job.snapshot() == reference().snapshot);
      CHECK(batches_of(job) == reference().batches);
      CHECK(job.processes_left() == 0);
    }
  }
}

TEST_CASE("the replacement joins at a later step and the world size is back") {
  JobRunner job;
  job.config(toy_config("workers = 4\ndeterministic = true", "step_ms = 20"));
  check_whole(job.run({"run", "pliant.toml", "--json", "--inject", "kill:rank=1,step=5"}));
  std::vector<int> sizes;
  for (const auto& record : job.ledger("generation")) sizes.push_back(record["world_size"].get<int>());
  CHECK(sizes == std::vector<int>{4, 2, 4});
  CHECK(job.snapshot() == reference().snapshot);
}

TEST_CASE("without replacement the survivors go on at the largest valid size") {
  JobRunner job;
  job.config(toy_config("workers = 4\ndeterministic = true\non_loss = \"shrink\""));
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--inject", "kill:rank=3,step=4,at=vote", "--inject",
                               "kill:rank=1,step=11,at=apply"});
  check_whole(ended);
  std::vector<int> sizes;
  for (const auto& record : job.ledger("generation")) sizes.push_back(record["world_size"].get<int>());
  CHECK(sizes == std::vector<int>{4, 2, 2});
  CHECK(job.snapshot() == reference().snapshot);
}

TEST_CASE("several workers killed in one step, and one again in the step after, change nothing") {
  JobRunner job;
  job.config(toy_config("workers = 4\ndeterministic = true\nmax_restarts = 9"));
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--inject", "kill:rank=0,step=7,at=reduce", "--inject",
                               "kill:rank=2,step=7,at=forward", "--inject", "kill:rank=1,step=8,at=commit"});
  check_whole(ended);
  CHECK(job.snapshot() == reference().snapshot);
}

TEST_CASE("when every worker dies the job goes back to its snapshot and loses nothing") {
  JobRunner job;
  job.config(toy_config("workers = 2\ndeterministic = true\nsnapshot_every = 5\nmax_restarts = 9"));
  const Ended ended = job.run({"run", "pliant.toml", "--json", "--inject", "kill:rank=0,step=13,at=apply", "--inject",
                               "kill:rank=1,step=13,at=apply"});
  check_whole(ended);
  CHECK(job.ledger("restart").size() == 1);
  CHECK(job.ledger("restart").front()["step"] == 10);
  CHECK(job.snapshot() == reference().snapshot);
}

TEST_CASE("whoever dies in the last step, the snapshot that the job ends with is written") {
  const std::string last = fmt::format("step={}", kSteps - 1);
  const auto kill_all = [&](const std::string& at) {
    std::vector<std::string> words;
    for (int rank = 0; rank < 4; ++rank) {
      words.insert(words.end(), {"--inject", fmt::format("kill:rank={},{},at={}", rank, last, at)});
    }
    return words;
  };
  const std::vector<std::vector<std::string>> histories{
      {"--inject", "kill:rank=0," + last + ",at=commit"},
      {"--inject", "kill:rank=0," + last + ",at=snapshot"},
      {"--inject", "kill:rank=0," + last + ",at=apply"},
      {"--inject", "kill:rank=0," + last + ",at=apply", "--inject", "kill:rank=3," + last + ",at=apply"},
      kill_all("commit"),
      kill_all("apply"),
  };
  for (const auto& history : histories) {
    INFO(fmt::format("{}", fmt::join(history, " ")));
    JobRunner job;
    job.config(toy_config("workers = 4\ndeterministic = true\nsnapshot_every = 7\nmax_restarts = 9"));
    std::vector<std::string> words{"run", "pliant.toml", "--json"};
    words.insert(words.end(), history.begin(), history.end());
    check_whole(job.run(words));
    CHECK(job.snapshot() == reference().snapshot);
    CHECK(job.processes_left() == 0);
  }
}

TEST_CASE("when the agent dies between the last commit and its snapshot a resume writes that snapshot") {
  JobRunner job;
  job.config(toy_config("workers = 4\ndeterministic = true\nsnapshot_every = 7"));
  const Ended killed =
      job.run({"run", "pliant.toml", "--json", "--inject", fmt::format("kill:agent,step={},at=commit", kSteps - 1)});
  REQUIRE(killed.exit_code == 128 + 9);
  check_whole(job.run({"run", "pliant.toml", "--json", "--resume"}));
  CHECK(job.snapshot() == reference().snapshot);
}

TEST_CASE("under exact the weights are bitwise the same at 1, 3 and 5 workers and after a death at each") {
  const std::string exact =
      "[elasticity.exact]\nmax_train_batch_size = 11\nmicro_batch_sizes = [1, 2]\nmax_gpus = 11\n"
      "weighted_sizes = [11]\n[run]";
  std::string first;
  for (const int workers : {1, 3, 5}) {
    for (const bool killed : {false, true}) {
      if (workers == 1 && killed) continue;
      CAPTURE(workers);
      JobRunner job;
      std::string config = toy_config(fmt::format("workers = {}\ndeterministic = true\non_loss = \"shrink\"", workers));
      config.replace(config.find("use = \"v0.1\""), 12, "use = \"exact\"");
      config.replace(config.find("[run]"), 5, exact);
      job.config(config);
      std::vector<std::string> words{"run", "pliant.toml", "--json"};
      if (killed) words.insert(words.end(), {"--inject", "kill:rank=1,step=4,at=reduce"});
      const Ended ended = job.run(words);
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(ended.summary["global_batch"] == 11);
      CHECK(ended.summary["samples_used_once"] == 203);
      CHECK(ended.summary["generations"] == (killed ? 2 : 1));
      if (first.empty()) first = job.snapshot();
      CHECK(job.snapshot() == first);
    }
  }
}
