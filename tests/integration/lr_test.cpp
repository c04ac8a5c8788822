// Learning-rate rules that measure gradient noise, in jobs that lose workers.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "integration/job_runner.hpp"

using namespace pliant::test;

namespace {

struct Job {
  std::string snapshot;
  std::vector<double> rates;
};

Job run(int workers, const std::vector<std::string>& more = {}) {
  JobRunner job;
  job.config(toy_config(fmt::format("workers = {}\ndeterministic = true\nepochs = 2", workers)));
  std::vector<std::string> arguments{"run", "pliant.toml", "--json"};
  for (const char* key : {"lr.use=adascale", "lr.optimizer=sgd_momentum", "lr.base_batch=30", "lr.base_lr=0.001",
                          "lr.schedule=[\"cosine\"]", "lr.then=[\"smooth\"]", "lr.smooth.over=5"}) {
    arguments.insert(arguments.end(), {"--set", key});
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ended ended = job.run(arguments);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  Job done{job.snapshot(), {}};
  for (const auto& record : job.ledger("commit")) done.rates.push_back(record["lr"].get<double>());
  return done;
}

}  // namespace

TEST_CASE("a measured rate is bitwise the same at 1, 2 and 4 workers and after deaths at any point") {
  const Job reference = run(1);
  REQUIRE(reference.rates.size() == 52);
  CHECK(reference.rates[3] > 0.001);  // the gain of a batch about four times the base
  for (const int workers : {2, 4}) {
    CAPTURE(workers);
    const Job other = run(workers);
    CHECK(other.rates == reference.rates);
    CHECK(other.snapshot == reference.snapshot);
  }
  for (const char* at : {"forward", "reduce", "vote", "commit", "apply"}) {
    CAPTURE(at);
    const Job other = run(4, {"--inject", fmt::format("kill:rank=1,step=7,at={}", at)});
    CHECK(other.rates == reference.rates);
    CHECK(other.snapshot == reference.snapshot);
  }
}

TEST_CASE(
    "a worker whose rule answers otherwise in later steps only is named and replaced before such a step is committed") {
  const auto config = [](int workers) {
    std::string toml = toy_config(fmt::format("workers = {}\ndeterministic = true", workers));
    toml.replace(toml.find("[sampler]"), 0, fmt::format("min_gpus = {}\n", workers));
    const std::string rule = "use = \"sqrt\"\n";
    return toml.replace(toml.find(rule), rule.size(),
                        fmt::format("use = \"moody\"\npath = \"{}\"\n", PLIANT_TEST_MOODY_RULE));
  };
  JobRunner plain;
  plain.config(config(1));
  REQUIRE(plain.run_json().exit_code == 0);
  JobRunner job;
  job.config(config(4));
  const Ended ended = job.run_json({"--inject", "kill:rank=1,step=5"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["restarts"] == 2);
  CHECK(has(ended.err,
            "got other answers for step 10 from its learning-rate rules than the other ranks (rate 0.02) and was"));
  CHECK(job.snapshot() == plain.snapshot());
  CHECK(ended.summary["samples_repeated"] == 0);
}

TEST_CASE("a rule that is not valid for the optimizer ends the job with its reason") {
  JobRunner job;
  job.config(toy_config("workers = 1"));
  const Ended ended = job.run({"run", "pliant.toml", "--set", "lr.use=adascale", "--set", "lr.optimizer=adam"});
  CHECK(ended.exit_code == 2);
  CHECK(ended.err.find("valid for sgd, sgd_momentum, nesterov only") != std::string::npos);
}
