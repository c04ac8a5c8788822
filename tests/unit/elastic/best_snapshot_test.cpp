// Which snapshot [run] keep_best keeps, by what a ledger says.
#include "elastic/best_snapshot.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "ledger_samples.hpp"

namespace pliant::elastic {
namespace {

/// Three steps, a snapshot after each, whose losses fall; and an evaluation after the first two.
Lineage sample() {
  Lineage lineage;
  for (int64_t step = 0; step < 3; ++step) {
    lineage.commits.push_back(test::commit_of(step));
    lineage.commits.back().metrics = {{"accuracy", step == 1 ? 0.9 : 0.5}};
    lineage.snapshots.push_back({step + 1, "step-" + std::to_string(step + 1)});
  }
  lineage.evaluations = {{1, 1, 0, {{"valid", 0.25}, {"loss", 0.1}}}, {2, 1, 0, {{"valid", 0.5}}}};
  return lineage;
}

RunOptions by(const char* metric, const char* best_is = "least") {
  RunOptions run;
  run.keep_best = metric;
  run.best_is = best_is;
  return run;
}

std::string best_of(const Lineage& lineage, const RunOptions& run, const std::string& missing = "") {
  const auto best = best_snapshot(lineage, run, [&](const SnapshotRecord& one) { return one.file != missing; });
  return best ? best->file : "none";
}

}  // namespace

TEST_CASE("the best snapshot is the one whose state has the least or the most of the metric") {
  const Lineage lineage = sample();
  CHECK(best_of(lineage, by("valid")) == "step-1");
  CHECK(best_of(lineage, by("valid", "most")) == "step-2");
  CHECK(best_of(lineage, by("accuracy", "most")) == "step-2");  // of the step that led to it
  CHECK(best_of(lineage, by("accuracy")) == "step-3");          // the newer of two equal ones
  CHECK(best_of(lineage, by("nothing")) == "none");
  CHECK(best_of(lineage, by("")) == "none");
}

TEST_CASE("an evaluation of a state counts before the loss of the step that led to it") {
  CHECK(best_of(sample(), by("loss")) == "step-1");
  Lineage plain = sample();
  plain.evaluations.clear();
  CHECK(best_of(plain, by("loss")) == "step-3");
}

TEST_CASE("a snapshot whose file is gone, or whose value is not finite, is not the best") {
  Lineage lineage = sample();
  CHECK(best_of(lineage, by("valid"), "step-1") == "step-2");
  lineage.evaluations[0].values["valid"] = -std::numeric_limits<double>::infinity();
  CHECK(best_of(lineage, by("valid")) == "step-2");
  CHECK_FALSE(value_of_state(lineage, 1, "valid").has_value());
  CHECK_FALSE(value_of_state(lineage, 0, "loss").has_value());
}

TEST_CASE("an evaluation that is better than those of all snapshots is found") {
  Lineage lineage = sample();
  const auto better_of = [&](const RunOptions& run) {
    const auto best = best_snapshot(lineage, run, [](const SnapshotRecord&) { return true; });
    const Evaluation* const found = better_evaluation(lineage, run, best);
    return found == nullptr ? int64_t{0} : found->step;
  };
  CHECK(better_of(by("valid")) == 0);
  CHECK(better_of(by("")) == 0);
  lineage.snapshots.erase(lineage.snapshots.begin());
  CHECK(better_of(by("valid")) == 1);
  CHECK(better_of(by("valid", "most")) == 0);
  lineage.snapshots.clear();
  CHECK(better_of(by("valid", "most")) == 2);
}

}  // namespace pliant::elastic
