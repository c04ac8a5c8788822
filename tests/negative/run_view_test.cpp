// What `pliant run` shows while a job runs: who is busy, and the program's own metrics.
#include "run_view.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "scratch_folder.hpp"

namespace pliant::cli {
namespace {

/// What goes to stderr meanwhile.
std::string shown_by(bool live, const std::function<void(RunView&)>& play) {
  const test::ScratchFolder folder;
  const std::string file = (folder / "stderr").string();
  const int kept = ::dup(STDERR_FILENO);
  std::FILE* const to = std::fopen(file.c_str(), "w");
  REQUIRE(to != nullptr);
  ::dup2(::fileno(to), STDERR_FILENO);
  {
    RunView view(live, false, false);
    play(view);
  }
  ::dup2(kept, STDERR_FILENO);
  ::close(kept);
  std::fclose(to);
  return test::read_all(file);
}

JobProgress progress_of(int64_t step) {
  JobProgress progress;
  progress.step = step;
  progress.total_steps = 10;
  progress.loss = 1.5;
  progress.world_size = 2;
  progress.learning_rate = 0.01;
  return progress;
}

bool has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the live line says who is busy, with what and for how long, until nobody is") {
  const std::string shown = shown_by(true, [](RunView& view) {
    view.on_commit(progress_of(3));
    view.on_busy({{0, 0, "evaluation", 12, 600}});
    view.on_busy({{0, 0, "evaluation", 13, 600}, {4, -1, "compilation", 70, 3600}});
    view.on_busy({});
  });
  CHECK(has(shown, "step 3/10  loss 1.5000  world 2  lr 0.01  rank 0: evaluation, 0:12 of at most 10:00\r"));
  CHECK(has(shown, "worker 4 and 1 more: compilation, 1:10 of at most 1:00:00\r"));
  CHECK(has(shown.substr(shown.rfind('\r')), "step 3/10"));
  CHECK_FALSE(has(shown.substr(shown.rfind('\r')), "evaluation"));
}

TEST_CASE("before the first commit the live line has those who are busy alone, and no line where nobody is") {
  const std::string shown = shown_by(true, [](RunView& view) {
    view.on_busy({});
    view.on_busy({{1, 1, "compilation\x1b[2J", 2, 60}});
  });
  CHECK(has(shown, "\r\033[Krank 1: compilation\\u001b[2J, 0:02 of at most 1:00\n"));
  CHECK(shown.rfind("\r\033[K", 0) == 0);
}

TEST_CASE("without a terminal somebody who is busy for long has one line") {
  const std::string shown = shown_by(false, [](RunView& view) {
    for (const double seconds : {1.0, 4.0, 6.0, 9.0}) view.on_busy({{0, 0, "evaluation", seconds, 600}});
    view.on_busy({});
    for (const double seconds : {1.0, 5.0}) view.on_busy({{0, 0, "upload", seconds, 600}});
  });
  CHECK(shown == "rank 0: evaluation, 0:06 of at most 10:00\nrank 0: upload, 0:05 of at most 10:00\n");
}

TEST_CASE("metrics of the step and the last evaluation stand beside the loss") {
  const std::string shown = shown_by(false, [](RunView& view) {
    JobProgress progress = progress_of(8);
    progress.metrics = {{"accuracy", 0.25}};
    progress.evaluation = Evaluation{5, 2, 0, {{"valid", 1.75}}};
    view.on_commit(progress);
  });
  CHECK(has(shown, "lr 0.01  accuracy 0.25  valid 1.75 at 5\n"));
}

TEST_CASE("the summary has metrics, evaluations and the best snapshot, and null where a number is not finite") {
  JobSummary summary;
  CHECK(nlohmann::json::parse(summary_json(summary))["best_snapshot"].is_null());
  summary.metrics = {{"accuracy", 0.25}, {"wild", std::numeric_limits<double>::quiet_NaN()}};
  summary.evaluations = {{5, 2, 1, {{"valid", 1.75}}}};
  summary.best = BestSnapshot{"snapshots/step-5", 5, "valid", 1.75};
  const auto json = nlohmann::json::parse(summary_json(summary));
  CHECK(json["metrics"]["accuracy"] == 0.25);
  CHECK(json["metrics"]["wild"].is_null());
  CHECK(json["evaluations"][0]["ranks_lost"] == 1);
  CHECK(json["evaluations"][0]["metrics"]["valid"] == 1.75);
  CHECK(json["best_snapshot"]["file"] == "snapshots/step-5");
  CHECK(json["best_snapshot"]["value"] == 1.75);
  CHECK(has(summary_table(summary), "snapshots/step-5, valid 1.75"));
}

TEST_CASE("memory of a small sharded model is shown in a unit that shows it") {
  JobSummary summary;
  summary.uses_api = true;
  summary.steps = 10;
  summary.sharded_memory.weights = 800;
  summary.sharded_memory.state = 3 << 10;
  summary.sharded_memory.sums = 5 << 19;
  summary.gathered = 12;
  summary.gathered_bytes = 1536;
  summary.bytes_moved = 112 << 10;
  const std::string table = summary_table(summary);
  CHECK(has(table, "weights 800 B, optimizer 3 KiB, gradients 2.5 MiB; peak gathered 0 B"));
  CHECK(has(table, "12 parameters, 1.5 KiB"));
  CHECK(has(table, "112 KiB to new owners"));
}

}  // namespace pliant::cli
