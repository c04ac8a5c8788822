// tinylm, run as a newcomer would: on a text of one's own and on the default one, undisturbed and with workers killed.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "integration/job_runner.hpp"
#include "thorough.hpp"

using namespace pliant::test;

namespace {

const std::string kTinylm = std::string(PLIANT_SOURCE_DIR) + "/samples/tinylm/pliant.toml";
const std::string kSharded = std::string(PLIANT_SOURCE_DIR) + "/samples/tinylm/zero3.toml";

// Sentences of 4 to 30 words that follow each other by rule, so that there is something to learn.
std::string write_text(const std::filesystem::path& file, int sentences = 4000) {
  static constexpr std::array kWords{"the",   "river", "runs", "down", "to",    "old",   "mill", "where", "children",
                                     "laugh", "and",   "a",    "grey", "heron", "waits", "for",  "small", "fish"};
  std::mt19937 random(7);
  std::ofstream out(file);
  for (int sentence = 0; sentence < sentences; ++sentence) {
    size_t word = random() % kWords.size();
    out << "So";
    for (size_t left = 4 + random() % 27; left > 0; --left) {
      out << ' ' << kWords[word];
      word = (word * 5 + 1 + random() % 3) % kWords.size();
    }
    out << ".\n";
  }
  return file.string();
}

// Where scripts/fetch-text leaves the novels. A machine without a network has none.
bool default_text_is_there() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path root;
  if (cache != nullptr && *cache == '/') {
    root = cache;
  } else if (home != nullptr) {
    root = std::filesystem::path(home) / ".cache";
  }
  return std::filesystem::exists(root / "pliant/text/austen.txt");
}

struct Curve {
  std::vector<std::string> digests;
  std::vector<double> losses;
};

Curve train(const std::vector<std::string>& more) {
  JobRunner job;
  std::vector<std::string> arguments{"run", kTinylm, "--json", "--set", "run.name=toy", "--set"};
  arguments.push_back("data.text=" + write_text(job.folder() / "mine.txt", 2500));
  for (const char* key : {"app.dim=32", "app.layers=1", "app.vocab=300", "run.max_steps=12", "app.warmup_steps=2",
                          "run.deterministic=false"}) {
    arguments.insert(arguments.end(), {"--set", key});
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ended ended = job.run(arguments);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["samples_used_once"] == ended.summary["samples_expected"]);
  CHECK(ended.summary["samples_repeated"] == 0);
  CHECK(ended.summary["samples_missing"] == 0);
  Curve curve;
  for (const auto& commit : job.ledger("commit")) {
    curve.digests.push_back(commit["digest"]);
    curve.losses.push_back(commit["loss"]);
  }
  REQUIRE(curve.losses.size() == 12);
  return curve;
}

void check_same(const Curve& curve, const Curve& reference) {
  CHECK(curve.digests == reference.digests);
  for (size_t step = 0; step < reference.losses.size(); ++step) {
    CAPTURE(step);
    CHECK(curve.losses[step] == doctest::Approx(reference.losses[step]).epsilon(1e-5));
  }
}

constexpr size_t kSmallSteps = 5;

/// `pliant run` of a small tinylm, in shards with `coordinator`, whole without one. Five workers take the policy that
/// allows them, with the batch of the other.
std::vector<std::string> small_job(const JobRunner& job, const std::string& coordinator, int workers) {
  std::vector<std::string> sets{"data.text=" + write_text(job.folder() / "mine.txt", 500),
                                "run.name=toy",
                                fmt::format("run.max_steps={}", kSmallSteps),
                                "run.snapshot_every=2",
                                "sampler.best_fit.max_tokens=64",
                                "app.max_sequence=64",
                                "app.vocab=300",
                                "app.dim=16",
                                "app.layers=2",
                                "app.warmup_steps=2"};
  if (!coordinator.empty()) sets.push_back(fmt::format("coordinator.use=\"{}\"", coordinator));
  if (workers == 5) {
    for (const char* set : {"elasticity.use=exact", "elasticity.exact.max_train_batch_size=12",
                            "elasticity.exact.micro_batch_sizes=[1, 2, 3]", "elasticity.exact.weighted_sizes=[12]",
                            "elasticity.exact.max_gpus=12"}) {
      sets.emplace_back(set);
    }
  }
  std::vector<std::string> made{"run", kTinylm, "--workers", std::to_string(workers)};
  for (const std::string& set : sets) made.insert(made.end(), {"--set", set});
  return made;
}

/// The states that its steps began with, each once. A job that is whole has that after the last step, too.
std::set<std::string> states_of(const JobRunner& job) {
  std::set<std::string> states;
  std::ifstream in(job.latest() / "digests.jsonl");
  for (std::string line; std::getline(in, line);) {
    if (nlohmann::json::parse(line).at("step").get<size_t>() < kSmallSteps) states.insert(line);
  }
  return states;
}

/// Every state of the job, and its last snapshot, are those of an undisturbed job that is whole.
void check_as_whole(const JobRunner& job) {
  static const auto kWhole = [] {
    JobRunner whole;
    REQUIRE(whole.run(small_job(whole, "", 1)).exit_code == 0);
    REQUIRE(whole.run({"audit", whole.latest().string()}).exit_code == 0);
    return std::pair(states_of(whole), whole.snapshot());
  }();
  REQUIRE(kWhole.first.size() == kSmallSteps);
  CHECK(states_of(job) == kWhole.first);
  CHECK(job.snapshot() == kWhole.second);
}

}  // namespace

// Each of the processes with libtorch that these jobs start takes a second of a processor before it does anything: no
// job has more workers than what it shows needs, and each coordinator and each number of workers is met somewhere. What
// has doctest::skip() runs in scripts/check-all.

TEST_CASE("tinylm trains on one's own text with the same loss curve at 1 worker and at 3 that are killed") {
  const Curve one = train({"--workers", "1"});
  CHECK(one.losses.back() < 0.9 * one.losses.front());
  check_same(train({"--workers", "3", "--inject", "kill:rank=2,step=3", "--inject", "kill:rank=0,step=6,at=commit"}),
             one);
  if (!is_thorough()) return;
  for (const char* const workers : {"2", "3", "4"}) check_same(train({"--workers", workers}), one);
}

TEST_CASE(
    "tinylm in shards has the states of tinylm whole, whoever decides, at one worker, at several and, under exact, at "
    "a "
    "number that does not divide the batch") {
  // Of zero3 the four workers of its file are below; eager at one and at two are in tests below, too.
  const std::map<std::string, std::set<int>> chosen{{"planned", {5}}, {"zero3", {}}, {"eager", {}}};
  for (const auto& one : chosen) {
    const std::string& coordinator = one.first;
    for (const int workers : {1, 2, 3, 4, 5}) {
      if (!is_thorough() && !one.second.contains(workers)) continue;
      CAPTURE(coordinator);
      CAPTURE(workers);
      JobRunner job;
      const Ended ended = job.run(small_job(job, coordinator, workers));
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      CHECK(has(ended.out + ended.err, "memory per rank"));
      check_as_whole(job);
      CHECK(job.run({"audit", job.latest().string()}).exit_code == 0);
    }
  }
}

TEST_CASE(
    "tinylm under zero3 that keeps nothing between two uses gathers more often and has the states of tinylm whole" *
    doctest::skip()) {
  std::vector<int64_t> gathered;
  for (const bool keeps : {true, false}) {
    CAPTURE(keeps);
    JobRunner job;
    std::vector<std::string> arguments = small_job(job, "zero3", 2);
    arguments.emplace_back("--json");
    if (!keeps) {
      arguments.insert(arguments.end(), {"--set", "coordinator.zero3.param_persistence_threshold=-1", "--set",
                                         "coordinator.zero3.max_reuse_distance=0"});
    }
    const Ended ended = job.run(arguments);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    check_as_whole(job);
    gathered.push_back(ended.summary.at("gathers_of_a_rank").at("parameters"));
  }
  CHECK(gathered[1] > gathered[0]);
}

TEST_CASE("tinylm in layer order has the states of tinylm whole, whoever decides, and gathers once for a whole step") {
  struct Way {
    std::string coordinator;
    int workers;
    std::string more;
  };
  for (const Way& way : {Way{"eager", 1, ""}, Way{"zero3", 2, ""}, Way{"planned", 3, "coordinator.budget=400000"}}) {
    CAPTURE(way.coordinator);
    CAPTURE(way.workers);
    std::vector<int64_t> gathered;
    for (const char* const order : {"pass", "layer"}) {
      if (!is_thorough() && way.coordinator != "eager" && order == std::string_view("pass")) continue;
      JobRunner job;
      std::vector<std::string> arguments = small_job(job, way.coordinator, way.workers);
      arguments.insert(arguments.end(), {"--json", "--set", std::string("app.order=") + order});
      if (!way.more.empty()) arguments.insert(arguments.end(), {"--set", way.more});
      const Ended ended = job.run(arguments);
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      check_as_whole(job);
      gathered.push_back(ended.summary.at("gathers_of_a_rank").at("parameters"));
    }
    // A step has 12 micro-batches on one worker. Of a model this small zero3 and planned keep all until a step ends.
    CHECK(gathered.back() <= gathered.front());
    if (way.coordinator == "eager") CHECK(gathered.front() == 12 * gathered.back());
  }
}

TEST_CASE("a trace of tinylm in layer order says what it takes at that number of workers and another" *
          doctest::skip()) {
  for (const char* const budget : {"coordinator.budget=400000", "coordinator.budget=0"}) {
    if (!is_thorough() && budget == std::string_view("coordinator.budget=0")) continue;
    CAPTURE(budget);
    JobRunner traced;
    const std::string trace = (traced.folder() / "trace.json").string();
    for (const int workers : {2, 1}) {
      CAPTURE(workers);
      JobRunner job;
      std::vector<std::string> run = small_job(job, "eager", workers);
      run.insert(run.end(), {"--json", "--set", "app.order=layer", "--set", budget});
      std::vector<std::string> plan = run;
      plan.front() = "plan";
      plan.erase(plan.begin() + 2, plan.begin() + 4);  // --workers N
      plan.insert(plan.end(), {"--memory", trace});
      if (workers == 2) run.insert(run.end(), {"--trace", trace});
      const Ended ended = job.run(run);
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      const Ended planned = job.run(plan);
      INFO(planned.err);
      REQUIRE(planned.exit_code == 0);
      CHECK(planned.summary.at("layer_order") == true);
      int rows = 0;
      for (const auto& row : planned.summary.at("world_sizes")) {
        if (row.at("world_size") != workers) continue;
        ++rows;
        for (const char* const kind : {"weights", "optimizer", "gradients", "whole_at_once"}) {
          CAPTURE(kind);
          const auto was = ended.summary.at("bytes_of_a_rank").at(kind).get<double>();
          CHECK(was == doctest::Approx(row.at(kind).get<double>()).epsilon(0.02));
        }
      }
      CHECK(rows == 1);
    }
  }
}

TEST_CASE("tinylm in layer order has the bits of passes one by one in fast mode, too" * doctest::skip()) {
  for (const int workers : {1, 2, 3}) {
    if (!is_thorough() && workers != 2) continue;
    CAPTURE(workers);
    std::vector<std::set<std::string>> states;
    for (const char* const order : {"pass", "layer"}) {
      JobRunner job;
      std::vector<std::string> arguments = small_job(job, "planned", workers);
      arguments.insert(arguments.end(),
                       {"--set", "run.deterministic=false", "--set", std::string("app.order=") + order});
      const Ended ended = job.run(arguments);
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
      states.push_back(states_of(job));
    }
    CHECK(states[0].size() == kSmallSteps);
    CHECK(states[0] == states[1]);
  }
}

TEST_CASE("tinylm in layer order has the same states when a worker dies where gradients leave, and when one leaves") {
  for (const char* const injection :
       {"kill:rank=1,step=3,at=scatter", "kill:rank=2,step=2,at=gather", "leave:rank=1,step=3"}) {
    if (!is_thorough() && !has(injection, "scatter")) continue;
    CAPTURE(injection);
    JobRunner job;
    std::vector<std::string> arguments = small_job(job, "planned", 3);
    arguments.insert(arguments.end(),
                     {"--set", "app.order=layer", "--set", "coordinator.budget=400000", "--inject", injection});
    const Ended ended = job.run(arguments);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    check_as_whole(job);
  }
}

TEST_CASE(
    "tinylm evaluates what it holds out, with the same bits at 1 and 3 workers, whole and in shards, and when one "
    "dies") {
  const auto results = [](const std::string& coordinator, int workers, const std::vector<std::string>& more) {
    JobRunner job;
    std::vector<std::string> arguments = small_job(job, coordinator, workers);
    for (const char* set : {"app.held_out=20", "app.evaluate_every=2"})
      arguments.insert(arguments.end(), {"--set", set});
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.emplace_back("--json");
    const Ended ended = job.run(arguments);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    std::map<int64_t, double> losses;
    for (const auto& one : ended.summary["evaluations"])
      losses[one["step"].get<int64_t>()] = one["metrics"]["held_out_loss"].get<double>();
    return losses;
  };
  const auto alone = results("", 1, {});
  REQUIRE(alone.size() == kSmallSteps / 2);
  CHECK(alone.rbegin()->second < alone.begin()->second);
  if (is_thorough()) CHECK(results("", 3, {}) == alone);
  if (is_thorough()) CHECK(results("", 2, {"--inject", "kill:rank=1,step=3,at=reduce"}) == alone);
  CHECK(results("zero3", 3, {"--set", "app.order=layer"}) == alone);
  CHECK(results("eager", 2, {"--inject", "kill:rank=1,step=3,at=reduce"}) == alone);
}

TEST_CASE("tinylm ends early where what it holds out has a small loss") {
  for (const char* const coordinator : {"", "planned"}) {
    CAPTURE(coordinator);
    JobRunner job;
    std::vector<std::string> arguments = small_job(job, coordinator, 2);
    for (const char* set : {"app.held_out=20", "app.evaluate_every=1", "app.stop_below=1000"})
      arguments.insert(arguments.end(), {"--set", set});
    arguments.emplace_back("--json");
    const Ended ended = job.run(arguments);
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(ended.summary["outcome"] == "ended early");
    CHECK(ended.summary["steps"] == 3);
  }
}

TEST_CASE("tinylm refuses evaluations over nothing, and to hold out all") {
  JobRunner job;
  for (const auto& [set, words] : {std::pair{"app.evaluate_every=2", "and app.held_out is 0"},
                                   std::pair{"app.held_out=1000000", "leaves nothing to train on: the text has "}}) {
    std::vector<std::string> arguments = small_job(job, "", 1);
    arguments.insert(arguments.end(), {"--set", set});
    const Ended ended = job.run(arguments);
    CHECK(ended.exit_code == 2);
    CHECK(has(ended.err, words));
  }
}

TEST_CASE("tinylm refuses an order that is none, and one that needs shards") {
  JobRunner job;
  std::vector<std::string> arguments = small_job(job, "planned", 1);
  arguments.insert(arguments.end(), {"--set", "app.order=sideways"});
  Ended ended = job.run(arguments);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "app.order must be \"pass\" or \"layer\", not \"sideways\""));
  arguments = small_job(job, "", 1);
  arguments.insert(arguments.end(), {"--set", "app.order=layer"});
  ended = job.run(arguments);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "app.order = \"layer\" needs [coordinator]"));
}

TEST_CASE("what a program has against [app] points at the user's file") {
  JobRunner job;
  const std::string text = write_text(job.folder() / "mine.txt", 500);
  const auto config = [&](const std::string& app) {
    return "config_version = 1\n[data]\ntext = '" + text +
           "'\n[run]\ncommand = ['tinylm']\nattach = 'required'\nname = 'toy'\n[elasticity]\nuse = 'v0.1'\n"
           "[elasticity.'v0.1']\nmax_train_batch_size = 2\nmicro_batch_sizes = [1]\n[sampler]\nuse = 'best_fit'\n"
           "[sampler.best_fit]\nmax_tokens = 64\n[app]\nmax_sequence = 64\n" +
           app;
  };
  job.config(config("dimm = 16\n"));
  Ended ended = job.run({"run", "pliant.toml"});
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "pliant.toml:19:1: error: unknown key 'dimm' in [app]"));
  CHECK(has(ended.err, "19 | dimm = 16"));
  CHECK_FALSE(has(ended.err, "config.toml:"));
  job.config(config("\ndim = 15\nheads = 4\n"));
  ended = job.run({"run", "pliant.toml"});
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "pliant.toml:20:7: error: app.dim must be a multiple of heads"));
  job.config(config("layers = 0\n"));
  ended = job.run({"run", "pliant.toml"});
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "pliant.toml:19:10: error: app.layers must be 1 to 64, not 0"));
  CHECK(has(ended.err, "19 | layers = 0"));
  job.config(config("heads = \"two\"\n"));
  ended = job.run({"run", "pliant.toml"});
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "pliant.toml:19:9: error: app.heads must be an integer, not the string \"two\""));
  const Ended checked = job.run({"config", "check", "pliant.toml"});
  CHECK(checked.exit_code == 0);
  CHECK(has(checked.out, "\n  [app] is the program's: it checks these keys when it starts\n"));
}

TEST_CASE("tinylm as zero3.toml shards it, over the workers that the file names, has the states of pliant.toml") {
  JobRunner job;
  std::vector<std::string> words = small_job(job, "", 1);
  words[1] = kSharded;
  const auto workers = std::find(words.begin(), words.end(), "--workers");
  words.erase(workers, workers + 2);
  words.emplace_back("--json");
  const Ended ended = job.run(words);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  REQUIRE(job.ledger("generation").size() == 1);
  CHECK(job.ledger("generation").front().at("world_size") == 4);
  CHECK(ended.summary.at("bytes_of_a_rank").at("optimizer") > 0);  // what only a job in shards says
  check_as_whole(job);
}

#ifdef PLIANT_SOFT_CUDA_DIR
TEST_CASE("tinylm in shards on a device whose memory the CPU does not reach is refused, with what to do") {
  const Environment here(std::map<std::string, std::string>{{"LD_LIBRARY_PATH", PLIANT_SOFT_CUDA_DIR}});
  JobRunner job;
  std::vector<std::string> words = small_job(job, "", 1);
  words[1] = kSharded;
  words.insert(words.end(), {"--json", "--set", "accelerator.use=\"cuda\""});
  const Ended ended = job.run(words);
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "tinylm computes on the CPU, which does not reach the memory of [accelerator] use = \"cuda\""));
  CHECK(has(ended.err, "leave [coordinator] out to train with it replicated, or set accelerator.use = \"host\""));
  CHECK(ended.summary.at("restarts") == 0);
  CHECK(job.processes_left() == 0);
}
#endif

TEST_CASE("tinylm under exact has the states that it has under v0.1" * doctest::skip()) {
  JobRunner job;
  REQUIRE(job.run(small_job(job, "", 5)).exit_code == 0);
  check_as_whole(job);
}

TEST_CASE(
    "tinylm goes on in shards from a snapshot of tinylm whole, the other way round, and in shards again with what "
    "planned had learnt, as if it had not ended") {
  struct Way {
    const char* first;  ///< coordinators; none: whole
    int workers;
    const char* then;
    int then_workers;
  };
  std::vector<Way> ways{Way{"", 1, "planned", 2}, Way{"eager", 2, "", 1}, Way{"planned", 1, "planned", 2}};
  if (is_thorough()) ways.insert(ways.end(), {Way{"planned", 2, "planned", 3}, Way{"", 2, "zero3", 1}});
  for (const Way& way : ways) {
    CAPTURE(way.first);
    CAPTURE(way.then);
    JobRunner job;
    std::vector<std::string> first = small_job(job, way.first, way.workers);
    first.insert(first.end(), {"--inject", "kill:agent,step=3"});
    REQUIRE(job.run(first).exit_code == 128 + SIGKILL);
    job.wait_for_processes();
    std::vector<std::string> second = small_job(job, way.then, way.then_workers);
    second.insert(second.end(), {"--resume", "--json"});
    const Ended ended = job.run(second);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.summary["resumed_from"] == 2);
    const bool is_sharded = *way.then != '\0';
    CHECK(has(read_all(job.latest() / "config.toml"), "[coordinator]") == is_sharded);
    check_as_whole(job);
    if (std::string(way.then) != "planned") continue;
    const nlohmann::json& passes = ended.summary.at("passes_of_a_rank");
    const int64_t anew = passes.at("all").get<int64_t>() - passes.at("followed").get<int64_t>();
    CHECK(anew == (*way.first == '\0' ? 1 : 0));  // the first of all
  }
}

TEST_CASE("tinylm in shards writes its weights by name, and another job begins from them") {
  JobRunner job;
  const auto arguments = [&job](const char* workers, std::vector<std::string> more) {
    more.insert(more.end(), {"data.text=" + write_text(job.folder() / "mine.txt", 500), "run.name=toy", "app.dim=32",
                             "app.layers=2", "app.warmup_steps=0"});
    if (std::none_of(more.begin(), more.end(), [](const std::string& set) { return has(set, "app.vocab"); }))
      more.emplace_back("app.vocab=300");
    std::vector<std::string> made{"run", kSharded, "--workers", workers};
    for (const std::string& set : more) made.insert(made.end(), {"--set", set});
    return made;
  };
  const auto file = [&job](int step) { return job.folder() / fmt::format("tinylm-{}.safetensors", step); };
  const auto bytes_of = [](const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  Ended ended = job.run(arguments("3", {"run.max_steps=4", "app.export_every=2"}));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const std::string after_four = bytes_of(file(4));
  CHECK(after_four.find("\"dtype\":\"F32\"") != std::string::npos);
  CHECK(bytes_of(file(2)).size() == after_four.size());
  CHECK(bytes_of(file(2)) != after_four);
  // Its last snapshot has the same weights, beside the optimizer's state.
  const auto tensors_of = [](const std::string& bytes) {
    size_t header = 0;
    for (size_t i = 8; i-- > 0;) header = header << 8 | static_cast<unsigned char>(bytes.at(i));
    return bytes.substr(8 + header);
  };
  const std::string exported = (job.folder() / "exported.safetensors").string();
  const Ended written = job.run({"snapshot", "export", job.latest().string(), "-o", exported, "--json"});
  INFO(written.err);
  REQUIRE(written.exit_code == 0);
  CHECK(written.summary.at("step") == 4);
  CHECK(tensors_of(bytes_of(exported)) == tensors_of(after_four));
  // Of a step that is lost as a worker dies there is nothing to write.
  if (is_thorough()) {
    std::vector<std::string> dies = arguments("2", {"run.max_steps=4", "app.export_every=1", "run.snapshot_every=1"});
    dies.insert(dies.end(), {"--show-logs", "--inject", "kill:rank=1,step=2,at=vote"});
    ended = job.run(dies);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK_FALSE(has(ended.err, "was not written"));
    CHECK(bytes_of(file(4)) == after_four);
  }
  // A rate of nothing leaves the weights as they came.
  ended = job.run(arguments("2", {"run.max_steps=1", "app.export_every=1", "lr.base_lr=0", "app.weight_decay=0",
                                  "app.first_weights=\"" + file(4).string() + "\""}));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(bytes_of(file(1)) == after_four);
  ended = job.run(arguments("1", {"app.first_weights=\"" + file(4).string() + "\"", "app.vocab=400"}));
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "the model has f32["));
}

TEST_CASE("tinylm under adam_sde and a schedule has the same loss curve whoever dies" * doctest::skip()) {
  std::vector<std::string> rule;
  for (const char* key :
       {"lr.use=adam_sde", "lr.schedule=[\"warmup\", \"cosine\"]", "lr.then=[\"smooth\", \"timescale\"]",
        "lr.warmup.steps=4", "lr.smooth.over=3", "app.warmup_steps=0"}) {
    rule.insert(rule.end(), {"--set", key});
  }
  rule.insert(rule.end(), {"--workers", "1"});
  const Curve undisturbed = train(rule);
  CHECK(undisturbed.losses.back() < undisturbed.losses.front());
  rule.back() = "2";
  rule.insert(rule.end(), {"--inject", "kill:rank=1,step=5"});
  check_same(train(rule), undisturbed);
}

TEST_CASE(
    "under exact tinylm has the same loss curve at 1 and 5 workers, which do not divide the batch, also where one "
    "dies" *
    doctest::skip()) {
  const auto at = [](const char* workers, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"--workers", workers};
    for (const char* key : {"elasticity.use=exact", "elasticity.exact.max_train_batch_size=13",
                            "elasticity.exact.micro_batch_sizes=[1, 2]", "elasticity.exact.weighted_sizes=[13]",
                            "elasticity.exact.max_gpus=13"}) {
      words.insert(words.end(), {"--set", key});
    }
    words.insert(words.end(), more.begin(), more.end());
    return train(words);
  };
  const Curve one = at("1");
  if (is_thorough()) {
    check_same(at("3"), one);
    check_same(at("5"), one);
  }
  check_same(at("5", {"--inject", "kill:rank=4,step=3", "--set", "run.on_loss=shrink"}), one);
}

TEST_CASE("tinylm in deterministic mode has bitwise the same states at 1 and 4 workers of which one is killed") {
  JobRunner job;
  std::vector<std::string> arguments = small_job(job, "", 4);
  arguments.insert(arguments.end(), {"--inject", "kill:rank=1,step=4,at=vote"});
  REQUIRE(job.run(arguments).exit_code == 0);
  check_as_whole(job);
}

// README's first job, which tests of the pages run, is this one with fewer steps.
TEST_CASE("tinylm learns real English with four workers of which one is killed" * doctest::skip()) {
  if (!default_text_is_there()) {
    MESSAGE("not run: there is no default text; scripts/fetch-text brings it");
    return;
  }
  JobRunner job;
  const Ended ended =
      job.run({"run", kTinylm, "--json", "--set", "run.max_steps=150", "--inject", "kill:rank=2,step=20"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.summary["generations"] >= 2);
  CHECK(ended.summary["restarts"] == 1);
  CHECK(ended.summary["samples_used_once"] == ended.summary["samples_expected"]);
  CHECK(ended.summary["loss_last"].get<double>() <= 0.75 * ended.summary["loss_first"].get<double>());
}
