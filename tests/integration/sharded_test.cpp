// Jobs whose state is cut over the workers: the same bits with every coordinator and at every number of workers, what
// they say, and what is refused.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "integration/sharded_jobs.hpp"

using namespace pliant::test;

namespace {

/// What rank 0 says of its steps, of a job with --show-logs.
std::string lines_of(const Ended& ended) {
  std::string lines;
  std::istringstream all(ended.err);
  for (std::string line; std::getline(all, line);) {
    if (has(line, "rank 0| step ")) lines += line + "\n";
  }
  return lines;
}

/// The numbers that lines with `words` end with, in their order.
std::vector<float> numbers_after(const std::string& lines, const std::string& words) {
  std::vector<float> numbers;
  for (size_t at = 0; (at = lines.find(words, at)) != std::string::npos;) {
    at += words.size();
    numbers.push_back(std::stof(lines.substr(at)));
  }
  return numbers;
}

}  // namespace

TEST_CASE("the bits of a sharded job depend neither on the coordinator nor on the number of workers") {
  REQUIRE(has(undisturbed(), "weights"));
  for (const auto& job_of : std::vector<std::pair<int64_t, std::string>>{{1, "zero3"},
                                                                         {2, "zero3"},
                                                                         {2, "eager"},
                                                                         {4, "zero3"},
                                                                         {4, "eager"},
                                                                         {1, "planned"},
                                                                         {3, "planned"},
                                                                         {4, "planned"}}) {
    const int64_t workers = job_of.first;
    const std::string& coordinator = job_of.second;
    CAPTURE(workers);
    CAPTURE(coordinator);
    JobRunner job;
    CHECK(state_after(job, sharded_job(workers, {fmt::format("coordinator.use=\"{}\"", coordinator)})) ==
          undisturbed());
  }
}

TEST_CASE(
    "a sharded job that loses a worker goes back to its newest snapshot and ends with the bits of one that did not") {
  for (const char* const point : {"forward", "reduce", "vote", "commit", "apply"}) {
    CAPTURE(point);
    JobRunner job;
    std::vector<std::string> command = sharded_job(4);
    command.insert(command.end(), {"--inject", fmt::format("kill:rank=2,step=6,at={}", point)});
    CHECK(state_after(job, command) == undisturbed());
    REQUIRE(job.ledger("restart").size() == 1);
    CHECK(job.ledger("restart").front().at("step") == 4);
  }
}

TEST_CASE("a sharded job that loses a worker before its first snapshot begins anew") {
  JobRunner job;
  std::vector<std::string> command = sharded_job(2);
  command.insert(command.end(), {"--inject", "kill:rank=0,step=2"});
  CHECK(state_after(job, command) == undisturbed());
  CHECK(job.ledger("restart").front().at("step") == 0);
}

TEST_CASE("a rate that follows the norms of micro-batches is the same at every number of workers") {
  const std::vector<std::string> rule{"lr.use=\"adascale\"", "lr.optimizer=\"sgd_momentum\"", "lr.base_batch=30",
                                      "lr.base_lr=0.001"};
  std::vector<std::string> states;
  for (const int64_t workers : {1, 2, 4}) {
    JobRunner job;
    states.push_back(state_after(job, sharded_job(workers, rule)));
    CHECK(states.back() == states.front());
    CHECK(states.back() != undisturbed());
    CHECK(job.ledger("commit").back().at("lr").get<double>() > 0.001);
  }
}

TEST_CASE("with bf16 a job has the same bits at every number of workers, other ones than with f32, and learns") {
  const std::vector<std::string> bf16{"coordinator.compute_dtype=\"bf16\"", "coordinator.reduce_dtype=\"bf16\""};
  std::vector<std::string> states;
  for (const int64_t workers : {1, 2, 4}) {
    JobRunner job;
    states.push_back(state_after(job, sharded_job(workers, bf16)));
    CHECK(states.back() == states.front());
    CHECK(states.back() != undisturbed());
    const auto commits = job.ledger("commit");
    CHECK(commits.back().at("loss").get<double>() < commits.front().at("loss").get<double>());
  }
}

TEST_CASE("a program that knows f32 only says so where the config asks for bf16") {
  JobRunner job;
  const std::string tinylm = std::string(PLIANT_SOURCE_DIR) + "/samples/tinylm/zero3.toml";
  if (!std::filesystem::exists(std::string(PLIANT_BIN_DIR) + "/tinylm")) {
    MESSAGE("not run: tinylm was not built, for want of libtorch");
    return;
  }
  std::ofstream(job.folder() / "some.txt") << std::string(4000, 'a') << ". And so on.\n";
  const Ended ended = job.run({"run", tinylm, "--json", "--set", "coordinator.compute_dtype=\"bf16\"", "--set",
                               fmt::format("data.text=\"{}\"", (job.folder() / "some.txt").string())});
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "tinylm computes in f32: leave compute_dtype and reduce_dtype of [coordinator] out"));
}

TEST_CASE("evaluation between steps says the same and leaves training its bits, whoever trains with whatever") {
  std::string evaluated;
  for (const int64_t workers : {1, 2, 3}) {
    for (const char* const coordinator : {"eager", "zero3", "planned"}) {
      CAPTURE(workers);
      CAPTURE(coordinator);
      JobRunner job;
      std::vector<std::string> command = sharded_job(workers, {fmt::format("coordinator.use=\"{}\"", coordinator),
                                                               "app.eval_every=5", "app.show=\"layer.2.weights\""});
      command.emplace_back("--show-logs");
      const Ended ended = job.run(command);
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(last_state(job) == undisturbed());
      if (evaluated.empty()) evaluated = lines_of(ended);
      CHECK(lines_of(ended) == evaluated);
    }
  }
  for (const char* const words :
       {"step 5: held-out loss 0.", "step 10: held-out loss 0.", "step 10: layer.2.weights begins with 0."}) {
    CHECK(has(evaluated, words));
  }
}

TEST_CASE("averages of the weights follow them step by step, and leave training its bits") {
  const auto near = [](double value) { return doctest::Approx(value).epsilon(1e-6); };
  const auto said_by = [](const std::string& parameter, const std::vector<std::string>& more) {
    JobRunner job;
    std::vector<std::string> sets{"app.eval_every=1", fmt::format("app.show=\"{}\"", parameter)};
    sets.insert(sets.end(), more.begin(), more.end());
    std::vector<std::string> command = sharded_job(2, sets);
    command.emplace_back("--show-logs");
    const Ended ended = job.run(command);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    return lines_of(ended);
  };
  const std::string plain = said_by("layer.1.weights", {});
  const std::string with = said_by("layer.1.weights", {"lr.ema=0.75"});
  CHECK(numbers_after(with, "held-out loss ") == numbers_after(plain, "held-out loss "));
  const std::vector<float> weights = numbers_after(with, "layer.1.weights begins with ");
  const std::vector<float> averages =
      numbers_after(said_by("layer.1.weights.average", {"lr.ema=0.75"}), "layer.1.weights.average begins with ");
  REQUIRE(weights.size() == kShardedSteps);
  REQUIRE(averages.size() == kShardedSteps);
  for (size_t step = 1; step < weights.size(); ++step) {
    CAPTURE(step);
    CHECK(averages[step] == near(averages[step - 1] + 0.25F * (weights[step] - averages[step - 1])));
    CHECK(averages[step] != near(weights[step]));
  }
  // Without memory they are the weights, and so are their losses.
  const std::string copied = said_by("layer.1.weights.average", {"lr.ema=0"});
  const std::vector<float> copies = numbers_after(copied, "layer.1.weights.average begins with ");
  const std::vector<float> losses = numbers_after(plain, "held-out loss ");
  const std::vector<float> losses_of_copies = numbers_after(copied, ", of the averages ");
  REQUIRE(copies.size() == kShardedSteps);
  REQUIRE(losses_of_copies.size() == kShardedSteps);
  for (size_t step = 0; step < copies.size(); ++step) {
    CAPTURE(step);
    CHECK(copies[step] == near(weights[step]));
    CHECK(losses_of_copies[step] == near(losses[step]));
  }
}

TEST_CASE("averages of the weights have the same bits, whoever trains with whatever, dies or leaves") {
  const std::vector<std::string> changes{"lr.ema=0.75", "app.eval_every=3"};
  std::string expected;
  for (const int64_t workers : {1, 3}) {
    for (const char* const coordinator : {"eager", "zero3", "planned"}) {
      CAPTURE(workers);
      CAPTURE(coordinator);
      std::vector<std::string> sets = changes;
      sets.push_back(fmt::format("coordinator.use=\"{}\"", coordinator));
      JobRunner job;
      const std::string state = state_after(job, sharded_job(workers, sets));
      if (expected.empty()) expected = state;
      CHECK(state == expected);
    }
  }
  for (const char* const injection : {"kill:rank=1,step=6,at=gather", "kill:rank=2,step=10", "leave:rank=0,step=6"}) {
    CAPTURE(injection);
    JobRunner job;
    CHECK(state_after(job, disturbed(sharded_job(4, changes), {injection})) == expected);
  }
}

TEST_CASE(
    "a module that has other parameters from a step on has the same bits, whoever trains with whatever and dies") {
  const std::vector<std::string> changes{"app.eval_every=1", "app.untie_after=6"};
  std::string untied;
  for (const int64_t workers : {1, 3}) {
    for (const char* const coordinator : {"eager", "zero3", "planned"}) {
      CAPTURE(workers);
      CAPTURE(coordinator);
      std::vector<std::string> sets = changes;
      sets.push_back(fmt::format("coordinator.use=\"{}\"", coordinator));
      JobRunner job;
      const std::string state = state_after(job, sharded_job(workers, sets));
      if (untied.empty()) untied = state;
      CHECK(state == untied);
    }
  }
  CHECK(untied != undisturbed());
  {  // Who is started anew comes with the parameters of before, the others with those of now: they decide alike.
    JobRunner job;
    const std::vector<std::string> seed{
        "app.untie_after=6", "coordinator.zero3.version=\"seed\"", "coordinator.zero3.param_persistence_threshold=-1",
        "coordinator.zero3.max_reuse_distance=0", "coordinator.zero3.reduce_bucket_size=1"};
    const Ended ended = job.run(disturbed(sharded_job(4, seed), {"kill:rank=2,step=10"}));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(last_state(job) == untied);
    CHECK(ended.summary.at("restarts") == 1);
    CHECK(job.ledger("restart").front().at("step") == 8);
  }
  for (const auto& death :
       std::vector<std::pair<std::string, int64_t>>{{"kill:rank=2,step=7", 4}, {"kill:rank=2,step=10", 8}}) {
    CAPTURE(death.first);
    JobRunner job;
    CHECK(state_after(job, disturbed(sharded_job(4, changes), {death.first})) == untied);
    CHECK(job.ledger("restart").front().at("step") == death.second);
  }
}

TEST_CASE("a parameter that the sample does not have is refused by the key that names it") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(1, {"app.show=\"layer.9.weights\""}));
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "app.show names no parameter"));
}

TEST_CASE(
    "a budget that the largest module does not fit in is refused by the name of the module, before the job begins") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(2, {"coordinator.budget=4096", "coordinator.use=\"eager\""}));
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "[coordinator] budget = 4096"));
  CHECK(has(ended.err, "layer.2 alone uses 48128 bytes with its gradients (layer.0.weights, ...)"));
}

TEST_CASE("a budget above what the device has left is refused by its name") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(
      2, {"coordinator.budget=100000000", "coordinator.use=\"eager\"", "accelerator.host.memory_bytes=50000000"}));
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err,
            "[coordinator] budget = 100000000 is more than the free memory of the device (accelerator 'host': out of "
            "device memory"));
}

TEST_CASE("the summary says how many bytes of each kind a worker held") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(1, {"coordinator.use=\"eager\"", "coordinator.budget=65536"}));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const nlohmann::json& bytes = ended.summary.at("bytes_of_a_rank");
  const auto shard = 9 * 1024 * sizeof(float);  // 9,000 weights in chunks
  CHECK(bytes.at("weights") >= shard);
  CHECK(bytes.at("weights") <= shard + 4096);  // and a stamp
  CHECK(bytes.at("optimizer") == 0);           // it has no state beside
  CHECK(bytes.at("gradients").get<uint64_t>() % shard == 0);
  CHECK(bytes.at("gradients") >= shard);
  CHECK(bytes.at("whole_at_once") >= 3 * 12032);  // the last layer's two parameters, a gradient
  CHECK(bytes.at("whole_at_once") <= 65536);
}

TEST_CASE("the summary of a sharded job calls what is compared shards, that of another states") {
  for (const bool sharded : {true, false}) {
    JobRunner job;
    std::vector<std::string> command = sharded_job(2);
    if (!sharded) {
      job.config(toy_config("workers = 2"));
      command = {"run", "pliant.toml", "--json"};
    }
    std::erase(command, "--json");
    const Ended ended = job.run(command);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(has(ended.out, "\nshards compared ") == sharded);
    CHECK(has(ended.out, "\nstates compared ") != sharded);
    CHECK(has(ended.out, sharded ? " at 14 steps, " : " at 26 steps, "));
  }
}

TEST_CASE("zero3 says that it keeps no budget below the size of the model, and what does") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(2, {"coordinator.budget=60000", "app.layers=9"}));
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "keeps no budget of 60000 bytes"));
}

TEST_CASE(
    "a budget that suffices changes no bit, and a coordinator that plans keeps it wherever one that does not can") {
  for (const int64_t workers : {1, 2, 4}) {
    for (const int64_t budget : {60416, 65536, 98304, 1000000}) {
      if (workers == 4 && budget == 60416) continue;  // parts of gradients from three others
      CAPTURE(workers);
      CAPTURE(budget);
      const std::string set = fmt::format("coordinator.budget={}", budget);
      JobRunner eager;
      CHECK(state_after(eager, sharded_job(workers, {set, "coordinator.use=\"eager\""})) == undisturbed());
      JobRunner planned;
      CHECK(state_after(planned, sharded_job(workers, {set, "coordinator.use=\"planned\""})) == undisturbed());
    }
  }
}

TEST_CASE("the passes of a coordinator that plans follow what it has seen, evaluation between steps among them") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(2, {"coordinator.use=\"planned\"", "app.eval_every=3"}));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const nlohmann::json& passes = ended.summary.at("passes_of_a_rank");
  CHECK(passes.at("all").get<int64_t>() - passes.at("followed").get<int64_t>() <= 3);  // each kind of pass is new once
}

TEST_CASE("a program that does not shard its model refuses a coordinator") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(1, {"run.command=[\"device_trainer\"]"}));
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "does not shard its model"));
}

TEST_CASE("a balancer that deals otherwise than in turn is refused in deterministic mode") {
  JobRunner job;
  const Ended ended = job.run(sharded_job(4, {"balancer.use=\"lpt\""}));
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "[balancer] use = \"lpt\""));
}

TEST_CASE("a balancer that only changes who computes within a round changes no bit") {
  JobRunner job;
  CHECK(state_after(job, sharded_job(3, {"balancer.use=\"cost_sort\"", "balancer.cost_sort.window=1"})) ==
        undisturbed());
}

TEST_CASE("fast mode trains, too, and the ranks agree on their state") {
  std::string states;  // of all steps
  for (const char* const coordinator : {"zero3", "planned"}) {
    CAPTURE(coordinator);
    JobRunner job;
    const Ended ended = job.run(sharded_job(
        4, {"run.deterministic=false", "run.digest_every=1", fmt::format("coordinator.use=\"{}\"", coordinator)}));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    check_commits(commits_of(job), undisturbed_job().commits, false);
    CHECK(ended.summary.at("digests") == kShardedSteps);
    CHECK(ended.summary.at("generations") == 1);
    const std::string seen = read_all(job.latest() / "digests.jsonl");
    if (states.empty()) states = seen;
    CHECK(std::count(seen.begin(), seen.end(), '\n') > kShardedSteps);  // each that a step began with, and the last
    CHECK(seen == states);
  }
}
