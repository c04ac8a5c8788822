// pliant report: what it says of ledgers of every kind, and where the figure puts it.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "elastic/ledger_line.hpp"
#include "negative/pliant_process.hpp"
#include "negative/svg_elements.hpp"

namespace {

using nlohmann::json;
using pliant::GroupCause;
using pliant::elastic::CommitRecord;
using pliant::elastic::GenerationRecord;
using pliant::elastic::HeaderRecord;
using pliant::elastic::LedgerRecord;
using pliant::elastic::NotFiniteRecord;
using pliant::elastic::RestartRecord;
using pliant::test::Outcome;
using pliant::test::read_all;
using pliant::test::run_pliant;
using pliant::test::ScratchFolder;
using pliant::test::svg_elements;
using pliant::test::SvgElement;

bool has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

/// A run whose ledger is written record by record.
class Run : public ScratchFolder {
 public:
  Run() {
    std::filesystem::create_directory(*this / "run");
    append(HeaderRecord{"run-1", "00ff"});
  }

  void group(int64_t generation, int64_t world_size, GroupCause cause, const std::string& reason = "because") {
    world_size_ = world_size;
    generation_ = generation;
    append(GenerationRecord{generation, world_size, next_, reason, {}, cause});
  }
  void steps(int64_t count, double loss = 2) {
    for (int64_t i = 0; i < count; ++i) commit(loss - 0.01 * static_cast<double>(next_));
  }
  void measure(std::map<std::string, double> metrics) {
    metrics_ = std::move(metrics);
    commit(2);
    metrics_.clear();
  }
  void evaluate(pliant::Evaluation evaluation) { append(evaluation); }
  void end_early(const char* reason) { append(pliant::elastic::EndRecord{next_, reason}); }
  void commit(double loss, bool skipped = false, int64_t padding_rows = 0, double rate = 0.01, int64_t rows = 4) {
    CommitRecord record;
    record.metrics = metrics_;
    record.step = next_++;
    record.generation = generation_;
    record.shares.assign(static_cast<size_t>(world_size_), {{0, 1}});
    record.size = {rows, rows, 10 * rows, 10 * rows, padding_rows};
    record.loss = loss;
    record.learning_rate = rate;
    record.skipped = skipped;
    append(record);
  }
  void restart(int64_t step) {
    append(RestartRecord{step});
    next_ = step;
  }
  void not_finite() { append(NotFiniteRecord{next_, "the loss of rank 1"}); }
  /// As the agent would have written it.
  [[nodiscard]] const std::string& ledger() const { return ledger_; }
  void write(const std::string& ledger) const { pliant::test::write_all(*this / "run/ledger.jsonl", ledger); }

  [[nodiscard]] Outcome report(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"report", "run"});
    return run_pliant(*this, more);
  }
  [[nodiscard]] json report_json() const {
    const Outcome outcome = report({"--json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return json::parse(outcome.out);
  }
  [[nodiscard]] std::string figure() const {
    const Outcome outcome = report({"--plot", "run.svg"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    const std::string figure = read_all(*this / "run.svg");
    CHECK_FALSE(has(figure, "nan"));
    CHECK_FALSE(has(figure, "inf"));
    return figure;
  }

 private:
  void append(const LedgerRecord& record) {
    ledger_ += pliant::elastic::encode_line(record);
    write(ledger_);
  }

  std::string ledger_;
  int64_t next_ = 0;
  int64_t world_size_ = 1;
  int64_t generation_ = 1;
  std::map<std::string, double> metrics_;
};

/// Text at the end of which numbers of a y axis stand, from top to bottom of the figure.
std::vector<std::string> labels_left(const std::string& figure) {
  std::vector<std::string> labels;
  for (const SvgElement& one : svg_elements(figure, "text")) {
    if (one.of("text-anchor") == "end" && one.of("font-size").empty()) labels.push_back(one.text);
  }
  return labels;
}

}  // namespace

TEST_CASE("metrics, evaluations and an early end are in table and JSON, and null where a step has none") {
  Run run;
  run.group(1, 2, GroupCause::kStart);
  run.steps(1);
  run.measure({{"accuracy", 0.25}, {"wild", std::numeric_limits<double>::infinity()}});
  run.measure({{"accuracy", 0.75}});
  run.evaluate({3, 2, 1, {{"valid", 0.5}}});
  run.end_early("good enough");
  const json report = run.report_json();
  CHECK(report["by_step"]["metrics"]["accuracy"] == json::array({nullptr, 0.25, 0.75}));
  CHECK(report["by_step"]["metrics"]["wild"] == json::array({nullptr, nullptr, nullptr}));
  CHECK(report["evaluations"] ==
        json::array({{{"step", 3}, {"ranks", 2}, {"ranks_lost", 1}, {"metrics", {{"valid", 0.5}}}}}));
  CHECK(report["ended_early"] == json({{"step", 3}, {"reason", "good enough"}}));
  const std::string table = run.report().out;
  CHECK(has(table, "0.75, at first 0.25; at 2 steps"));
  CHECK(has(table, "0.5; evaluated 1 time, last after step 3"));
  CHECK(has(table, "early, after 3 steps: good enough"));
}

TEST_CASE("what is no run, or has no whole ledger, is refused with what to give instead") {
  const ScratchFolder folder;
  const Outcome nothing = run_pliant(folder, {"report", "nowhere"});
  CHECK(nothing.exit_code == 2);
  CHECK(has(nothing.err, "nowhere is not a directory; give the directory of a run, such as pliant-runs/NAME/latest"));
  std::filesystem::create_directory(folder / "run");
  const Outcome empty = run_pliant(folder, {"report", "run", "--json"});
  CHECK(empty.exit_code == 2);
  CHECK(has(empty.err, "run has no ledger.jsonl"));
  CHECK(json::parse(empty.out)["schema"] == "pliant.error/1");
  for (const char* name : {"runs/1", "runs/2", "runs/3"}) std::filesystem::create_directories(folder / name);
  pliant::test::write_all(folder / "runs/1/ledger.jsonl", "");
  pliant::test::write_all(folder / "runs/2/ledger.jsonl", "");
  pliant::test::write_all(folder / "runs/3/job.json", "{}");
  CHECK(has(run_pliant(folder, {"report", "runs/3"}).err, "it failed before its first step"));
  CHECK(has(run_pliant(folder, {"report", "runs/3"}).err,
            "the newest run beside it that has one is " + (folder / "runs/2").string()));
  CHECK(has(run_pliant(folder, {"report", "runs/2", "--plot", "run.png"}).err, "write run.svg, not 'run.png'"));
  pliant::test::write_all(folder / "run/ledger.jsonl", "{\"record\":\"led");
  const Outcome torn = run_pliant(folder, {"report", "run"});
  CHECK(torn.exit_code == 1);
  CHECK(has(torn.err, "it has no complete header"));
  CHECK(run_pliant(folder, {"report"}).exit_code == 2);
}

TEST_CASE("a ledger that is damaged in the middle is refused, and one whose last line is torn is read up to there") {
  Run run;
  run.group(1, 2, GroupCause::kStart);
  run.steps(3);
  run.write(run.ledger().substr(0, run.ledger().size() - 5));
  CHECK(run.report_json()["steps"] == 2);
  std::string damaged = run.ledger();
  damaged[damaged.find("\"step\":1") + 7] = '7';
  run.write(damaged);
  const Outcome refused = run.report();
  CHECK(refused.exit_code == 1);
  CHECK(has(refused.err, "ledger.jsonl:4: this line of the ledger is damaged"));
}

TEST_CASE("a run without a step has a report and no figure") {
  Run run;
  CHECK(has(run.report().out, "0 steps committed"));
  run.group(1, 2, GroupCause::kStart);
  CHECK(run.report().exit_code == 0);
  CHECK(run.report_json()["by_step"]["loss"].empty());
  const Outcome plotted = run.report({"--plot", "run.svg"});
  CHECK(plotted.exit_code == 1);
  CHECK(has(plotted.err, "has no committed step to draw"));
  CHECK_FALSE(std::filesystem::exists(run / "run.svg"));
}

TEST_CASE("groups are listed with what formed them, and steps that a restart went back over are kept apart") {
  Run run;
  run.group(1, 4, GroupCause::kStart, "start");
  run.steps(10);
  run.group(2, 3, GroupCause::kLoss, "rank 2 was killed");
  run.steps(2);
  run.group(3, 4, GroupCause::kJoin, "a worker joined");
  run.steps(3);
  run.restart(12);
  run.group(4, 2, GroupCause::kStart, "start");
  run.steps(8, 3);
  const json report = run.report_json();
  CHECK(report["schema"] == "pliant.report/1");
  CHECK(report["steps"] == 20);
  CHECK(report["steps_discarded"] == 3);
  std::vector<std::string> causes;
  for (const json& group : report["groups"]) causes.push_back(group["cause"]);
  CHECK(causes == std::vector<std::string>{"start", "loss", "join", "resume"});
  CHECK(report["groups"][3]["step"] == 12);
  CHECK(report["groups"][3]["steps_discarded"] == 3);
  CHECK(report["by_step"]["world_size"][11] == 3);
  CHECK(report["by_step"]["world_size"][12] == 2);
  CHECK(report["discarded"][0]["step"] == json{12, 13, 14});
  const std::string text = run.report().out;
  CHECK(has(text, "20 steps committed, 3 discarded by restarts and computed again"));
  CHECK(has(text, "2 ranks in the last group, 2 to 4 over the run"));
  CHECK(has(text, "4: 1 after a loss, 1 as workers joined, 1 by a resume"));
  CHECK(has(text, "loss               rank 2 was killed"));
}

TEST_CASE("the figure has three panels over one step axis, and a mark at the step of each change") {
  Run run;
  run.group(1, 4, GroupCause::kStart);
  run.steps(20);
  run.group(2, 3, GroupCause::kLoss);
  run.steps(10);
  run.group(3, 4, GroupCause::kJoin);
  run.steps(10);
  const std::string figure = run.figure();
  for (const char* const name : {">loss</text>", ">learning rate</text>", ">ranks</text>", ">step</text>"}) {
    CHECK(has(figure, name));
  }
  CHECK(has(figure, ">worker lost</text>"));
  CHECK(has(figure, ">worker joined</text>"));
  CHECK_FALSE(has(figure, ">resumed</text>"));
  // The world size falls exactly where the first rule stands, half way of 40 steps.
  std::vector<double> rules;
  for (const SvgElement& one : svg_elements(figure, "line")) {
    if (one.of("stroke-dasharray") == "2 3") rules.push_back(one.number("x1"));
  }
  REQUIRE(rules.size() == 6);  // two changes in three panels
  CHECK(rules[0] == rules[2]);
  const auto ticks = svg_elements(figure, "text");
  const auto tick = [&ticks](const std::string& text) {
    return std::find_if(ticks.begin(), ticks.end(),
                        [&text](const SvgElement& one) {
                          return one.text == text && one.of("text-anchor") == "middle" && !one.of("x").empty();
                        })
        ->number("x");
  };
  CHECK(rules[0] == doctest::Approx(tick("20")).epsilon(0.001));
  CHECK(rules[1] == doctest::Approx(tick("30")).epsilon(0.001));
  bool falls = false;
  for (const SvgElement& one : svg_elements(figure, "path")) {
    const std::string path = one.of("d");
    falls = falls || path.find("H" + std::to_string(rules[0]).substr(0, 5) + "V") != std::string::npos;
  }
  CHECK(falls);
}

TEST_CASE("each metric and evaluation has a panel over the same steps, between loss and learning rate") {
  Run run;
  run.group(1, 2, GroupCause::kStart);
  run.measure({{"a < b", 0.25}});
  run.measure({{"a < b", 0.75}, {"wild", std::numeric_limits<double>::infinity()}});
  run.evaluate({2, 2, 0, {{"valid", 0.5}, {"lost", std::numeric_limits<double>::quiet_NaN()}}});
  run.measure({{"a < b", 0.5}});
  run.restart(2);
  run.group(2, 1, GroupCause::kLoss);
  run.measure({{"a < b", 0.875}});
  run.steps(1);
  run.evaluate({4, 1, 0, {{"valid", 0.25}}});
  const std::string figure = run.figure();
  std::vector<std::string> panels;
  for (const SvgElement& one : svg_elements(figure, "text")) {
    if (one.of("font-weight") == "bold" && one.of("font-size").empty()) panels.push_back(one.text);
  }
  CHECK(panels == std::vector<std::string>{"a &lt; b", "lost", "valid", "wild"});
  CHECK(figure.find(">loss</text>") < figure.find(">a &lt; b</text>"));
  CHECK(figure.find(">wild</text>") < figure.find(">learning rate</text>"));
  CHECK(has(figure, ">discs: evaluations</text>"));
  const auto paths = svg_elements(figure, "path");
  const auto of = [&paths](const std::string& color, const std::string& opacity) {
    const auto found = std::find_if(paths.begin(), paths.end(), [&](const SvgElement& one) {
      return one.of("stroke") == color && one.of("stroke-opacity") == opacity && one.of("fill") == "none";
    });
    REQUIRE(found != paths.end());
    return pliant::test::path_numbers(found->of("d"));
  };
  const std::vector<double> values = of("#56B4E9", "");
  REQUIRE(values.size() == 6);  // three steps: the fourth has none
  CHECK(values[1] > values[3]);
  CHECK(values[3] > values[5]);
  // Results lie where the state had seen so many steps: half of the four, and all of them.
  const std::vector<double> results = of("#CC79A7", "");
  REQUIRE(results.size() == 4);
  CHECK(results[0] == doctest::Approx((92 + results[2]) / 2).epsilon(0.001));
  std::vector<double> rules;
  for (const SvgElement& one : svg_elements(figure, "line")) {
    if (one.of("stroke-dasharray") == "2 3") rules.push_back(one.number("x1"));
  }
  CHECK(rules == std::vector<double>(7, results[0]));  // the group changed at step 2, in all panels
  const auto circles = svg_elements(figure, "circle");
  CHECK(std::count_if(circles.begin(), circles.end(),
                      [](const SvgElement& one) { return one.of("fill") == "#CC79A7"; }) == 2);
  CHECK(std::any_of(circles.begin(), circles.end(), [](const SvgElement& one) {
    return one.of("fill") == "#56B4E9" && one.of("fill-opacity") == "0.35";
  }));
}

TEST_CASE("of very many metrics the first have panels, the figure says how many more there are, and names are cut") {
  Run run;
  run.group(1, 2, GroupCause::kStart);
  std::map<std::string, double> metrics;
  for (char letter = 'a'; letter < 'a' + 20; ++letter) metrics[std::string(100, letter)] = 1;
  run.measure(metrics);
  const std::string figure = run.figure();
  const auto texts = svg_elements(figure, "text");
  CHECK(std::count_if(texts.begin(), texts.end(), [](const SvgElement& one) {
          return one.of("font-weight") == "bold" && one.of("font-size").empty() && one.text.size() < 70;
        }) == 12);
  CHECK(has(figure, "8 more: --json has them"));
}

TEST_CASE("ranks are counted in whole numbers from 0, with room above the most") {
  Run run;
  run.group(1, 1, GroupCause::kStart);
  run.steps(4);
  const std::string figure = run.figure();
  const std::vector<std::string> labels = labels_left(figure);
  REQUIRE(labels.size() >= 3);
  CHECK(std::vector<std::string>(labels.end() - 3, labels.end()) == std::vector<std::string>{"0", "1", "2"});
}

TEST_CASE("an axis of losses that does not begin at 0 says so, and one that does says nothing") {
  Run far;
  far.group(1, 2, GroupCause::kStart);
  far.steps(20, 5);
  CHECK(has(far.figure(), ">axis begins at 4.8</text>"));
  Run near;
  near.group(1, 2, GroupCause::kStart);
  near.commit(2);
  near.commit(0.1);
  CHECK_FALSE(has(near.figure(), "axis begins"));
}

TEST_CASE("steps without an update and losses that are not finite are marked, and interrupt the line") {
  Run run;
  run.group(1, 2, GroupCause::kStart);
  run.steps(5);
  run.commit(std::numeric_limits<double>::quiet_NaN(), true);
  run.steps(2);
  run.commit(std::numeric_limits<double>::infinity());
  run.steps(3);
  run.not_finite();
  const json report = run.report_json();
  CHECK(report["steps_skipped"] == 1);
  CHECK(report["losses_not_finite"] == 2);
  CHECK(report["by_step"]["loss"][5].is_null());
  CHECK(report["not_finite"]["step"] == 12);
  const std::string text = run.report().out;
  CHECK(has(text, "; not finite at 2 steps"));
  CHECK(has(text, "at step 12: the loss of rank 1"));
  const std::string figure = run.figure();
  CHECK(has(figure, ">step without update</text>"));
  CHECK(has(figure, ">not finite</text>"));
  const auto paths = svg_elements(figure, "path");
  const auto pieces = std::count_if(paths.begin(), paths.end(), [](const SvgElement& one) {
    return one.of("stroke") == "#0072B2" && one.of("fill") == "none";
  });
  CHECK(pieces == 3);
}

TEST_CASE("losses that are never finite leave an empty panel") {
  Run run;
  run.group(1, 2, GroupCause::kStart);
  run.commit(std::numeric_limits<double>::quiet_NaN());
  CHECK(has(run.figure(), ">not finite</text>"));
  CHECK(has(run.report().out, "not finite at 1 step"));
}

TEST_CASE("discarded steps are pale, beside those that took their place") {
  Run run;
  run.group(1, 2, GroupCause::kStart);
  run.steps(12);
  run.restart(8);
  run.group(2, 2, GroupCause::kLoss);
  run.steps(2, 2.5);
  const std::string figure = run.figure();
  CHECK(has(figure, "discarded, computed again (4)"));
  const auto paths = svg_elements(figure, "path");
  const auto pale = std::find_if(paths.begin(), paths.end(), [](const SvgElement& one) {
    return one.of("stroke") == "#0072B2" && one.of("stroke-opacity") == "0.35";
  });
  REQUIRE(pale != paths.end());
  // It goes on where the surviving line, which has 10 steps of 12, has ended.
  const auto whole = std::find_if(paths.begin(), paths.end(), [](const SvgElement& one) {
    return one.of("stroke") == "#0072B2" && one.of("stroke-opacity").empty();
  });
  REQUIRE(whole != paths.end());
  const std::vector<double> given_up = pliant::test::path_numbers(pale->of("d"));
  const std::vector<double> kept = pliant::test::path_numbers(whole->of("d"));
  CHECK(given_up[given_up.size() - 2] > kept[kept.size() - 2]);
}

TEST_CASE("the learning rate of a short last batch does not set the scale") {
  Run run;
  run.group(1, 2, GroupCause::kStart);
  for (int i = 0; i < 9; ++i) run.commit(1, false, 0, 0.0100 + 0.0001 * (i % 3));
  run.commit(1, false, 3, 0.002);
  const std::string figure = run.figure();
  CHECK(has(figure, ">axis begins at 0.009"));
  CHECK(has(figure, "triangles: short batches, the last of an epoch"));
}

TEST_CASE("nor does that of a last batch that has fewer rows than the others and no empty ones") {
  Run run;
  run.group(1, 2, GroupCause::kStart);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int i = 0; i < 9; ++i) run.commit(1, false, 0, 0.0100 + 0.0001 * (i % 3));
    run.commit(1, false, 0, 0.0075, 3);
  }
  const std::string figure = run.figure();
  CHECK(has(figure, ">axis begins at 0.009"));
  CHECK(has(figure, "triangles: short batches, the last of an epoch"));
  const auto paths = svg_elements(figure, "path");
  const auto of_rates = [&paths](const std::string& fill) {
    return std::count_if(paths.begin(), paths.end(), [&fill](const SvgElement& one) {
      return one.of("stroke") == "#009E73" && one.of("fill") == fill;
    });
  };
  CHECK(of_rates("none") == 1);  // the line
  CHECK(of_rates("#fff") == 2);  // a triangle for each epoch
}

TEST_CASE("where every batch is short their learning rates are a line") {
  Run run;
  run.group(1, 2, GroupCause::kStart);
  for (int i = 0; i < 5; ++i) run.commit(1, false, 1, 0.01 + 0.001 * i);
  const std::string figure = run.figure();
  CHECK_FALSE(has(figure, "triangles"));
  const auto paths = svg_elements(figure, "path");
  CHECK(std::any_of(paths.begin(), paths.end(), [](const SvgElement& one) { return one.of("stroke") == "#009E73"; }));
}

TEST_CASE("more steps than pixels become a band and a line of a few hundred points") {
  Run run;
  run.group(1, 2, GroupCause::kStart);
  run.steps(1300, 40);
  const std::string figure = run.figure();
  CHECK(has(figure, "fill-opacity=\"0.2\""));
  CHECK(figure.size() < 100'000);
}
