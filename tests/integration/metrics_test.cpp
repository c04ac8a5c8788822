// Metrics of a program's own and its evaluations: in the ledger, on stdout and in reports, whatever happens to the job.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "integration/job_runner.hpp"

using namespace pliant::test;

namespace {

using Values = std::map<std::string, double>;

struct Course {
  std::vector<Values> metrics;        ///< of each step
  std::map<int64_t, Values> results;  ///< of evaluations, by step
  bool operator==(const Course&) const = default;
};

Course course_of(const JobRunner& job) {
  const auto lineage = pliant::elastic::Ledger::replay(job.latest() / "ledger.jsonl");
  REQUIRE(lineage.has_value());
  Course course;
  for (const auto& commit : lineage->commits) course.metrics.push_back(commit.metrics);
  for (const auto& one : lineage->evaluations) course.results[one.step] = one.values;
  return course;
}

void configure(JobRunner& job, int workers, const std::string& more = "") {
  job.config(toy_config("deterministic = true\nworkers = " + std::to_string(workers) + "\n" + more, "metrics = true"));
}

Course run(JobRunner& job, int workers, std::vector<std::string> more = {}) {
  configure(job, workers);
  const Ended ended = job.run_json(std::move(more));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  return course_of(job);
}

const Course& undisturbed() {
  static const Course one = [] {
    JobRunner job;
    return run(job, 1);
  }();
  return one;
}

}  // namespace

TEST_CASE("an evaluation between next and commit is that of the steps before, once for each state, whoever dies") {
  const std::vector<std::pair<int, std::string>> jobs{{1, ""},
                                                      {4, ""},
                                                      {4, "kill:rank=1,step=10,at=reduce"},
                                                      {4, "kill:rank=1,step=10,at=vote"},
                                                      {2, "kill:rank=0,step=10,at=commit"}};
  for (const auto& [workers, kill] : jobs) {
    CAPTURE(workers);
    CAPTURE(kill);
    JobRunner job;
    std::vector<std::string> more{"--set", "app.evaluates_first=true"};
    if (!kill.empty()) more.insert(more.end(), {"--inject", kill});
    const Course course = run(job, workers, more);
    CHECK(course.metrics == undisturbed().metrics);
    REQUIRE(course.results.contains(0));
    for (const int64_t step : {5, 10, 15}) {
      REQUIRE(course.results.contains(step));
      CHECK(course.results.at(step) == undisturbed().results.at(step));
    }
    CHECK(job.ledger("evaluation").size() == course.results.size());
  }
}

TEST_CASE("metrics and evaluations have the same bits at every number of workers") {
  const Course& alone = undisturbed();
  REQUIRE(alone.metrics.size() > 20);
  CHECK(alone.metrics[3].size() == 4);
  CHECK(alone.metrics[3].at("rows") == 8);
  CHECK(alone.metrics[3].at("last_row") == 7);
  CHECK(alone.metrics[3].at("of_rank_0") == 3);
  REQUIRE(alone.results.count(5) == 1);
  CHECK(alone.results.at(5).at("loss_of_sequence") > alone.results.at(20).at("loss_of_sequence"));
  for (const int workers : {2, 4}) {
    CAPTURE(workers);
    JobRunner job;
    CHECK(run(job, workers) == alone);
  }
}

TEST_CASE("metrics of steps that were lost are those of the steps that were made again") {
  JobRunner job;
  const Course course =
      run(job, 4, {"--inject", "kill:rank=2,step=7,at=vote", "--inject", "kill:rank=1,step=12,at=reduce"});
  CHECK(course.metrics == undisturbed().metrics);
}

TEST_CASE("metrics and evaluations are in the summary and in the report, and the last evaluation, too") {
  JobRunner job;
  configure(job, 2, "max_steps = 20");
  const Ended ended = job.run_json({"--set", "lr.groups.head=0.02", "--set", "lr.groups.tail=0.5", "--show-logs"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.err, "[lr.groups] has no group 'nobody's'; it has head, tail"));  // which the worker asks for
  const Course course = course_of(job);
  CHECK(ended.summary["metrics"]["rows"] == 8);
  REQUIRE(ended.summary["evaluations"].size() == 4);
  const auto& last = ended.summary["evaluations"][3];
  CHECK(last["step"] == 20);  // the state that the job ends with
  CHECK(last["ranks"] == 2);
  CHECK(last["ranks_lost"] == 0);
  CHECK(last["metrics"]["loss_of_sequence"] == course.results.at(20).at("loss_of_sequence"));
  CHECK(has(ended.err, "evaluation after step 5: loss_of_sequence "));
  const Ended shown = job.run({"report", job.latest().string(), "--json"});
  REQUIRE(shown.exit_code == 0);
  CHECK(shown.summary["by_step"]["metrics"]["rows"].size() == 20);
  CHECK(shown.summary["evaluations"] == ended.summary["evaluations"]);
  const Ended table = job.run({"report", job.latest().string()});
  CHECK(has(table.out, "evaluated 4 times, last after step 20"));
}

TEST_CASE("the line of a step has the metrics of that step and the last evaluation before it") {
  JobRunner job;
  configure(job, 2, "max_steps = 20");
  const Ended ended = job.run_json();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const size_t at = ended.err.find("step 20/20  loss ");
  REQUIRE(at != std::string::npos);
  const std::string line = ended.err.substr(at, ended.err.find('\n', at) - at);
  const Course course = course_of(job);
  CHECK(has(line, "  rows 8  "));
  CHECK(has(line, fmt::format("  loss_of_row {:.4g}  ", course.metrics.at(19).at("loss_of_row"))));
  CHECK(has(line, fmt::format("  loss_of_sequence {:.4g} at 15", course.results.at(15).at("loss_of_sequence"))));
}

TEST_CASE("a job ends early when ranks find the state good enough, at the same step at every number of workers") {
  const double target = undisturbed().results.at(10).at("loss_of_sequence") * (1 + 1e-9);
  for (const int workers : {1, 4}) {
    CAPTURE(workers);
    JobRunner job;
    job.config(toy_config(fmt::format("deterministic = true\nworkers = {}", workers),
                          fmt::format("metrics = true\nends_below = {:.17g}", target)));
    const Ended ended = job.run_json();
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(ended.summary["outcome"] == "ended early");
    CHECK(has(ended.summary["reason"].get<std::string>(), "the loss is small enough"));
    CHECK(ended.summary["steps"] == 12);  // evaluated after 10, known at the commit of the 11th
    CHECK(ended.summary["samples_missing"] == 0);
    CHECK(ended.summary["snapshot"].get<std::string>().find("12") != std::string::npos);
    const Ended shown = job.run({"report", job.latest().string(), "--json"});
    CHECK(shown.summary["ended_early"]["step"] == 12);
    CHECK(
        has(job.run({"report", job.latest().string()}).out, "early, after 12 steps: rank 0: the loss is small enough"));
  }
}

TEST_CASE("a run that ended early goes on with --resume") {
  JobRunner job;
  job.config(toy_config("deterministic = true\nworkers = 2", "metrics = true\nends_below = 1e9"));
  REQUIRE(job.run_json().summary["outcome"] == "ended early");
  job.config(toy_config("deterministic = true\nworkers = 2", "metrics = true"));
  const Ended ended = job.run_json({"--resume"});
  INFO(ended.err);
  CHECK(ended.summary["outcome"] == "finished");
  CHECK(ended.summary["samples_used_once"] == 203);
  CHECK(course_of(job) == undisturbed());
}

TEST_CASE("the best snapshot is kept beside the newest ones, and the summary says where it is") {
  JobRunner job;
  for (const char* best_is : {"least", "most"}) {
    CAPTURE(best_is);
    const std::string keys = fmt::format(
        "snapshot_every = 5\nkeep_snapshots = 1\nkeep_best = \"loss_of_sequence\"\nbest_is = \"{}\"", best_is);
    configure(job, 2, keys);
    const Ended ended = job.run_json();
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    const auto& best = ended.summary["best_snapshot"];
    const auto results = course_of(job).results;
    const auto less = [](const auto& a, const auto& b) {
      return a.second.at("loss_of_sequence") < b.second.at("loss_of_sequence");
    };
    const bool least = std::string(best_is) == "least";
    const auto expected = least ? std::min_element(results.begin(), results.end(), less)
                                : std::max_element(results.begin(), results.end(), less);
    CHECK(best["step"] == expected->first);
    CHECK(best["metric"] == "loss_of_sequence");
    CHECK(best["value"] == expected->second.at("loss_of_sequence"));
    CHECK(std::filesystem::exists(job.latest() / best["file"].get<std::string>()));
    CHECK(has(ended.err, "best snapshot by loss_of_sequence: "));
    const auto files = std::filesystem::directory_iterator(job.latest() / "snapshots");
    CHECK(std::distance(begin(files), end(files)) == (best["file"] == ended.summary["snapshot"] ? 1 : 2));
  }
}

TEST_CASE("pliant snapshot export --best writes the model of the best step of a job, and without it that of the last") {
  JobRunner job;
  configure(job, 2, "snapshot_every = 5\nkeep_snapshots = 1\nkeep_best = \"loss_of_sequence\"\nbest_is = \"most\"");
  const Ended ended = job.run_json();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const auto step = ended.summary["best_snapshot"]["step"].get<int64_t>();
  REQUIRE(step < ended.summary["steps"].get<int64_t>());
  const std::string best = (job.folder() / "best.safetensors").string();
  const std::vector<std::string> exports{"snapshot", "export", job.latest().string(), "-o", best};
  const auto with = [&exports](std::vector<std::string> more) {
    more.insert(more.begin(), exports.begin(), exports.end());
    return more;
  };
  Ended shown = job.run(with({"--best", "--json"}));
  INFO(shown.err);
  REQUIRE(shown.exit_code == 0);
  CHECK(shown.summary["step"] == step);
  CHECK(shown.summary["best"]["metric"] == "loss_of_sequence");
  CHECK(shown.summary["best"]["value"] == ended.summary["best_snapshot"]["value"]);
  CHECK(shown.summary["tensors"] == 1);

  // What a job that ends after the best step ends with: the array of weights, then as much that is no array.
  JobRunner shorter;
  configure(shorter, 1, fmt::format("max_steps = {}", step));
  REQUIRE(shorter.run_json().exit_code == 0);
  const std::string state = shorter.snapshot();
  const auto bytes = shown.summary["bytes"].get<size_t>();
  REQUIRE(state.size() > 2 * bytes);
  const std::string file = read_all(best);
  CHECK(file.substr(file.size() - bytes) == state.substr(state.size() - 2 * bytes, bytes));

  shown = job.run(exports);
  CHECK(shown.exit_code == 2);
  CHECK(has(shown.err, "best.safetensors exists already; choose another name, or overwrite it with --force"));
  CHECK(read_all(best) == file);
  shown = job.run(with({"--force"}));
  CHECK(shown.exit_code == 0);
  CHECK(has(shown.out, fmt::format("after {} steps", ended.summary["steps"].get<int64_t>())));
  CHECK_FALSE(has(shown.out, "best by"));
  CHECK(read_all(best) != file);
  shown = job.run(with({"--force", "--best"}));
  CHECK(has(shown.out, "best by   loss_of_sequence"));
  CHECK(read_all(best) == file);
  shown = shorter.run({"snapshot", "export", shorter.latest().string(), "-o", best, "--force", "--best"});
  CHECK(shown.exit_code == 2);
  CHECK(has(shown.err, "its [run] keep_best is not set"));
  CHECK(job.run(with({"--force", "--best", "--step", "5"})).exit_code == 2);
  CHECK(read_all(best) == file);
}

TEST_CASE("a metric of keep_best that no evaluation gives is named when the job ends") {
  JobRunner job;
  configure(job, 1, "keep_best = \"loss_of_sequences\"");
  const Ended ended = job.run_json();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(
      has(ended.err, "no evaluation gave \"loss_of_sequences\", so that [run] keep_best has kept nothing; they gave "));
  CHECK(has(ended.err, "loss_of_sequence"));
}

TEST_CASE("the program hears of each snapshot before and after it, and what fails there costs that snapshot alone") {
  JobRunner job;
  job.config(toy_config("workers = 2\nsnapshot_every = 8\nkeep_snapshots = 9", "hooks = true\nrefuse_snapshot = 16"));
  const Ended ended = job.run_json();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const std::string log = read_all((job.latest() / "logs" / "rank-0.log").string());
  CHECK(has(log, "before the snapshot of step 8\nafter the snapshot of step 8: there, \n"));
  CHECK(has(log,
            "after the snapshot of step 16: not there, what the program does before a snapshot failed: the store is "
            "full\n"));
  CHECK(has(log, "what the program does after a snapshot failed: this hook fails"));
  CHECK(
      has(ended.err, "no snapshot of step 16 from rank 0 (worker 0): what the program does before a snapshot failed"));
  CHECK(has(log, fmt::format("after the snapshot of step {}: there, ", ended.summary["steps"].get<int>())));
  std::vector<int64_t> steps;
  for (const auto& record : job.ledger("snapshot")) steps.push_back(record["step"].get<int64_t>());
  CHECK(std::find(steps.begin(), steps.end(), 16) == steps.end());
  CHECK(std::find(steps.begin(), steps.end(), 24) != steps.end());
}

TEST_CASE("metrics and evaluations after a snapshot that a job goes back to are void") {
  JobRunner job;
  configure(job, 2, "snapshot_every = 8");
  const Ended killed = job.run_json({"--inject", "kill:agent,step=13,at=commit"});
  CHECK(killed.exit_code == 128 + 9);
  const Ended ended = job.run_json({"--resume"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  Course course = course_of(job);
  CHECK(course == undisturbed());
}
