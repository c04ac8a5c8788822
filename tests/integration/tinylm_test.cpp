// tinylm, run as a newcomer would: on a text of one's own and on the default one, undisturbed and with workers killed.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "integration/job_runner.hpp"

using namespace pliant::test;

namespace {

const std::string kTinylm = std::string(PLIANT_SOURCE_DIR) + "/samples/tinylm/pliant.toml";

// Sentences of 4 to 30 words that follow each other by rule, so that there is something to learn.
std::string write_text(const std::filesystem::path& file) {
  static constexpr std::array kWords{"the",   "river", "runs", "down", "to",    "old",   "mill", "where", "children",
                                     "laugh", "and",   "a",    "grey", "heron", "waits", "for",  "small", "fish"};
  std::mt19937 random(7);
  std::ofstream out(file);
  for (int sentence = 0; sentence < 4000; ++sentence) {
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
  arguments.push_back("data.text=" + write_text(job.folder() / "mine.txt"));
  for (const char* key :
       {"app.dim=32", "app.layers=1", "run.max_steps=12", "app.warmup_steps=2", "run.deterministic=false"}) {
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

}  // namespace

TEST_CASE("tinylm trains on one's own text with the same loss curve at 1, 2, 3 and 4 workers") {
  const Curve one = train({"--workers", "1"});
  CHECK(one.losses.back() < 0.9 * one.losses.front());
  for (const char* workers : {"2", "3", "4"}) {
    CAPTURE(workers);
    check_same(train({"--workers", workers}), one);
  }
}

TEST_CASE("tinylm in shards has the states of tinylm whole, step by step, and snapshots that are equal") {
  const std::string sharded = std::string(PLIANT_SOURCE_DIR) + "/samples/tinylm/zero3.toml";
  JobRunner whole;
  JobRunner shards;
  const auto arguments = [](const JobRunner& job, const std::string& config, const char* workers) {
    std::vector<std::string> made{"run", config, "--workers", workers};
    for (const std::string& set :
         {"data.text=" + write_text(job.folder() / "mine.txt"), std::string("run.name=toy"), std::string("app.dim=32"),
          std::string("app.layers=2"), std::string("run.max_steps=6"), std::string("app.warmup_steps=2")}) {
      made.insert(made.end(), {"--set", set});
    }
    return made;
  };
  REQUIRE(whole.run(arguments(whole, kTinylm, "2")).exit_code == 0);
  const Ended ended = shards.run(arguments(shards, sharded, "3"));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.out + ended.err, "memory of a rank"));
  // The states that steps began with; the whole job has that after the last step, too.
  const auto lines = [](JobRunner& job) {
    std::ifstream in(job.latest() / "digests.jsonl");
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line) && all.size() < 6;) all.push_back(line);
    return all;
  };
  CHECK(lines(shards) == lines(whole));
  CHECK(whole.run({"audit", whole.latest().string()}).exit_code == 0);
  CHECK(shards.run({"audit", shards.latest().string()}).exit_code == 0);
  // Behind the state are its size and a checksum; in front, the id of the run and what shards say of their model.
  const auto state_of = [](JobRunner& job) {
    std::ifstream in(job.latest() / "snapshots/step-00000006.snapshot", std::ios::binary);
    std::string all(std::istreambuf_iterator<char>(in), {});
    return all.substr(0, all.size() - 16);
  };
  const std::string one = state_of(shards);
  const std::string other = state_of(whole);
  const size_t end = std::min(one.size(), other.size()) - 1000;
  CHECK(one.substr(one.size() - end) == other.substr(other.size() - end));
}

TEST_CASE("tinylm in shards writes its weights by name, and another job begins from them") {
  const std::string sharded = std::string(PLIANT_SOURCE_DIR) + "/samples/tinylm/zero3.toml";
  JobRunner job;
  const auto arguments = [&job, &sharded](const char* workers, std::vector<std::string> more) {
    more.insert(more.end(), {"data.text=" + write_text(job.folder() / "mine.txt"), "run.name=toy", "app.dim=32",
                             "app.layers=2", "app.warmup_steps=0"});
    std::vector<std::string> made{"run", sharded, "--workers", workers};
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
  // A rate of nothing leaves the weights as they came.
  ended = job.run(arguments("2", {"run.max_steps=1", "app.export_every=1", "lr.base_lr=0", "app.weight_decay=0",
                                  "app.first_weights=\"" + file(4).string() + "\""}));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(bytes_of(file(1)) == after_four);
  ended = job.run(arguments("2", {"app.first_weights=\"" + file(4).string() + "\"", "app.vocab=400"}));
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "the model has f32["));
}

TEST_CASE("tinylm's loss curve is that of an undisturbed run after workers were killed") {
  const Curve undisturbed = train({"--workers", "4"});
  check_same(train({"--workers", "4", "--inject", "kill:rank=2,step=3", "--inject", "kill:rank=0,step=6,at=commit"}),
             undisturbed);
}

TEST_CASE("tinylm under adam_sde and a schedule has the same loss curve whoever dies") {
  std::vector<std::string> rule{"--workers", "4"};
  for (const char* key :
       {"lr.use=adam_sde", "lr.schedule=[\"warmup\", \"cosine\"]", "lr.then=[\"smooth\", \"timescale\"]",
        "lr.warmup.steps=4", "lr.smooth.over=3", "app.warmup_steps=0"}) {
    rule.insert(rule.end(), {"--set", key});
  }
  const Curve undisturbed = train(rule);
  CHECK(undisturbed.losses.back() < undisturbed.losses.front());
  rule.insert(rule.end(), {"--inject", "kill:rank=1,step=5"});
  check_same(train(rule), undisturbed);
}

TEST_CASE("under exact tinylm has the same loss curve at 1, 3 and 5 workers, which do not divide the batch") {
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
  check_same(at("3"), one);
  check_same(at("5"), one);
  check_same(at("5", {"--inject", "kill:rank=4,step=3", "--set", "run.on_loss=shrink"}), one);
}

TEST_CASE("tinylm in deterministic mode has bitwise the same losses at 1 and 4 workers") {
  const Curve one = train({"--workers", "1", "--set", "run.deterministic=true"});
  const Curve four =
      train({"--workers", "4", "--set", "run.deterministic=true", "--inject", "kill:rank=1,step=4,at=vote"});
  CHECK(four.losses == one.losses);
}

TEST_CASE("tinylm learns real English with four workers of which one is killed") {
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
