// What `pliant plan --memory` says before a run is what the run's ranks then hold.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "integration/sharded_jobs.hpp"

using namespace pliant::test;

namespace {

/// The layers of the sample as a file that some other program might have written.
std::filesystem::path model_file(const JobRunner& job, int layers, int width) {
  std::string header = "{";
  const auto bytes = static_cast<uint64_t>(width) * 4;
  for (int i = 0; i < layers; ++i) {
    header +=
        fmt::format(R"({}"layer.{}.weights":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})", i == 0 ? "" : ",",
                    i, width, static_cast<uint64_t>(i) * bytes, static_cast<uint64_t>(i + 1) * bytes);
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string size(8, '\0');
  for (size_t i = 0; i < size.size(); ++i) size[i] = static_cast<char>(header.size() >> (8 * i) & 0xFFU);
  const std::filesystem::path file = job.folder() / "model.safetensors";
  std::ofstream(file, std::ios::binary) << size << header << std::string(bytes * static_cast<uint64_t>(layers), '\0');
  return file;
}

/// `run` as `plan --memory`.
std::vector<std::string> planned(std::vector<std::string> run, const std::filesystem::path& model) {
  run.front() = "plan";
  run.insert(run.end(), {"--memory", model.string(), "--optimizer-states", "0"});
  return run;
}

bool within(double part, const nlohmann::json& said, const nlohmann::json& was) {
  const auto a = said.get<double>();
  const auto b = was.get<double>();
  return std::abs(a - b) <= part * b;
}

/// Rows of `pliant plan --memory` and of a summary. How far `planned` fills its budget follows what gathers cost on the
/// machine as it was then.
void check_alike(const nlohmann::json& said, const nlohmann::json& was) {
  for (const char* const kind : {"weights", "gradients", "whole_at_once"}) {
    CAPTURE(kind);
    CAPTURE(said.at(kind).get<int64_t>());
    CAPTURE(was.at(kind).get<int64_t>());
    CHECK(within(std::string(kind) == "whole_at_once" ? 0.2 : 0.02, said.at(kind), was.at(kind)));
  }
}

}  // namespace

TEST_CASE("what a plan says that a rank takes is what a rank takes") {
  const std::string large = "app.layers=8";
  const std::string wide = "app.width=20000";
  struct Case {
    int64_t workers;
    std::vector<std::string> sets;
  };
  for (const Case& one :
       {Case{1, {"coordinator.use=\"planned\"", "coordinator.budget=600000"}},
        Case{2, {"coordinator.use=\"planned\"", "coordinator.budget=400000"}},
        Case{2, {"coordinator.use=\"planned\"", "coordinator.budget=700000"}},
        Case{4, {"coordinator.use=\"planned\"", "coordinator.budget=900000"}},
        Case{4, {"coordinator.use=\"planned\"", "coordinator.budget=600000", "run.deterministic=false"}},
        Case{2,
             {"coordinator.use=\"planned\"", "coordinator.budget=400000", "coordinator.compute_dtype=\"bf16\"",
              "coordinator.reduce_dtype=\"bf16\""}}}) {
    std::vector<std::string> sets{large, wide, "run.max_steps=6"};
    sets.insert(sets.end(), one.sets.begin(), one.sets.end());
    CAPTURE(one.workers);
    CAPTURE(fmt::format("{}", fmt::join(one.sets, ", ")));
    JobRunner job;
    const std::vector<std::string> run = sharded_job(one.workers, sets);
    const Ended plan = job.run(planned(run, model_file(job, 8, 20000)));
    INFO(plan.err);
    REQUIRE(plan.exit_code == 0);
    nlohmann::json said;
    for (const nlohmann::json& row : plan.summary.at("world_sizes")) {
      if (row.at("world_size") == one.workers) said = row;
    }
    REQUIRE(said.is_object());
    const Ended ended = job.run(run);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    const nlohmann::json& was = ended.summary.at("bytes_of_a_rank");
    check_alike(said, was);
    CHECK(said.at("optimizer") == 0);
  }
}

TEST_CASE("a plan of memory in layer order counts a gradient beside the one that is on its way") {
  JobRunner job;
  const std::filesystem::path model = model_file(job, 8, 20000);
  std::vector<nlohmann::json> said;
  for (const bool in_layer_order : {false, true}) {
    std::vector<std::string> plan = planned(sharded_job(2, {"coordinator.use=\"eager\""}), model);
    if (in_layer_order) plan.emplace_back("--layer-order");
    const Ended ended = job.run(plan);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary.at("layer_order") == in_layer_order);
    said.push_back(ended.summary.at("world_sizes").front());
  }
  CHECK(said[1].at("whole_at_once") > said[0].at("whole_at_once"));
  CHECK(said[1].at("gradients") == said[0].at("gradients"));
}

TEST_CASE("a plan by the trace of one run says what ranks take at that world size and at another") {
  for (const std::string& budget :
       {std::string("coordinator.budget=600000"), std::string("coordinator.budget=900000")}) {
    CAPTURE(budget);
    // Layers are tied, and an evaluation comes between two steps.
    const std::vector<std::string> sets{
        "app.layers=8", "app.width=20000", "app.eval_every=2", "run.max_steps=6", "coordinator.use=\"planned\"",
        budget};
    JobRunner traced;
    const std::filesystem::path trace = traced.folder() / "trace.json";
    std::vector<std::string> recorded = sharded_job(2, sets);
    recorded.insert(recorded.end(), {"--trace", trace.string()});
    REQUIRE(traced.run(recorded).exit_code == 0);
    for (const int64_t workers : {2, 4}) {
      CAPTURE(workers);
      JobRunner job;
      const std::vector<std::string> run = sharded_job(workers, sets);
      const Ended plan = job.run(planned(run, trace));
      INFO(plan.err);
      REQUIRE(plan.exit_code == 0);
      nlohmann::json said;
      for (const nlohmann::json& row : plan.summary.at("world_sizes")) {
        if (row.at("world_size") == workers) said = row;
      }
      REQUIRE(said.is_object());
      const Ended ended = job.run(run);
      REQUIRE(ended.exit_code == 0);
      const nlohmann::json& was = ended.summary.at("bytes_of_a_rank");
      check_alike(said, was);
    }
  }
}

TEST_CASE("sizes at which the budget does not suffice are said beside those at which it does") {
  JobRunner job;
  const Ended plan = job.run(planned(
      sharded_job(2, {"app.layers=8", "app.width=20000", "coordinator.use=\"planned\"", "coordinator.budget=161000"}),
      model_file(job, 8, 20000)));
  INFO(plan.err);
  REQUIRE(plan.exit_code == 0);
  int fit = 0;
  int refused = 0;
  for (const nlohmann::json& row : plan.summary.at("world_sizes")) {
    const bool is_refused = row.contains("refused");
    ++(is_refused ? refused : fit);
    if (is_refused) CHECK(has(row.at("refused"), "[coordinator] budget = 161000 is too small: "));
  }
  CHECK(fit > 0);
  CHECK(refused > 0);
}

TEST_CASE("a budget that cannot hold the largest module is refused before anything runs, and what would help works") {
  JobRunner job;
  const std::filesystem::path model = model_file(job, 3, 3000);
  const Ended refused =
      job.run(planned(sharded_job(2, {"coordinator.use=\"planned\"", "coordinator.budget=4096"}), model));
  CHECK(refused.exit_code == 2);
  CHECK(
      has(refused.err, "[coordinator] budget = 4096 is too small: layer.0 alone uses 24064 bytes with its gradients"));
  const Ended without = job.run(
      {"plan", std::string(PLIANT_SOURCE_DIR) + "/samples/device_trainer/pliant.toml", "--memory", model.string()});
  CHECK(without.exit_code == 2);
  REQUIRE(has(without.err, "add --set coordinator.use=planned"));
  const Ended with = job.run({"plan", std::string(PLIANT_SOURCE_DIR) + "/samples/device_trainer/pliant.toml",
                              "--memory", model.string(), "--set", "coordinator.use=planned"});
  INFO(with.err);
  CHECK(with.exit_code == 0);
  CHECK(has(with.out, "DeepSpeed's estimate"));
  CHECK(has(with.out, "activations"));
}
