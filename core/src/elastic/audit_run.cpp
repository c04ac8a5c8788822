// audit_run() and compare_runs(): open run directories as their workers did, and read.
#include "pliant/audit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/result.hpp"
#include "data/lengths_file.hpp"
#include "elastic/audit.hpp"
#include "elastic/config_replay.hpp"
#include "elastic/ledger.hpp"
#include "elastic/run_directory.hpp"
#include "elastic/state_digest.hpp"
#include "pliant/batches.hpp"
#include "pliant/config.hpp"

namespace pliant {
namespace {

namespace fs = std::filesystem;
using elastic::CommitRecord;
using elastic::Lineage;
using elastic::RunDirectory;
using Parts = std::map<std::string, std::string>;  // digests in hex, by name

struct OpenRun {
  RunDirectory directory;
  Lineage lineage;
};

OpenRun open_run(const fs::path& run) {
  std::error_code error;
  if (!fs::exists(run / "ledger.jsonl", error)) {
    throw Error(Status::kNotFound,
                fmt::format("{} {}; give the directory of a run, such as pliant-runs/NAME/latest", run.string(),
                            fs::is_directory(run, error) ? "has no ledger.jsonl" : "is no directory"),
                ExitCode::kUsage);
  }
  RunDirectory directory = or_throw(RunDirectory::open(run));
  Lineage lineage = or_throw(elastic::Ledger::replay(directory.ledger()));
  return {std::move(directory), std::move(lineage)};
}

Batches plan_of(const OpenRun& run) {
  ConfigOverrides as_resolved;
  as_resolved.read_environment = false;
  const Config config = Config::open(run.directory.config(), {"sampler"}, as_resolved);
  const elastic::JobFacts facts = or_throw(run.directory.read_facts());
  Plan plan;
  plan.global_batch = facts.global_batch;
  plan.granule = facts.granule;
  Batches batches(config, plan, or_throw(data::read_dataset(run.directory.dataset())));
  if (const std::string own = fmt::format("{:016x}", batches.fingerprint()); own != run.lineage.fingerprint) {
    throw Error(Status::kDataLoss,
                fmt::format("{}: its ledger was written for other data or options (fingerprint {} instead of {}) than "
                            "its config.toml and dataset.bin hold",
                            run.directory.path().string(), run.lineage.fingerprint, own));
  }
  return batches;
}

/// The parts of the state that step `step` began with; empty where nothing is kept of it, or of another state.
Parts parts_of(const RunDirectory& directory, int64_t step, uint64_t root) {
  std::ifstream in(directory.path() / elastic::kDigestsFile);
  Parts parts;
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    const auto is = [&json](const char* key, const auto& value) {
      const auto found = json.is_object() ? json.find(key) : json.end();
      return found != json.end() && *found == value;
    };
    if (!is("step", step) || !is("root", fmt::format("{:016x}", root)) || !json.contains("parts")) continue;
    for (const auto& [name, value] : json["parts"].items()) {
      if (value.is_string()) parts[name] = value.get<std::string>();
    }
  }
  return parts;
}

/// Of the state after the last step, where it was compared.
std::optional<uint64_t> last_state_of(const Lineage& lineage) {
  if (lineage.snapshots.empty()) return std::nullopt;
  const elastic::SnapshotRecord& newest = lineage.snapshots.back();
  return newest.step == static_cast<int64_t>(lineage.commits.size()) ? newest.state : std::nullopt;
}

/// Names whose digests differ, or that only one of the two has.
std::vector<std::string> differing(const Parts& own, const Parts& other) {
  std::set<std::string> names;
  for (const auto& [name, value] : own) {
    const auto found = other.find(name);
    if (found == other.end() || found->second != value) names.insert(name);
  }
  for (const auto& [name, value] : other) {
    if (!own.contains(name)) names.insert(name);
  }
  return {names.begin(), names.end()};
}

std::string names_text(const std::vector<std::string>& names) {
  constexpr size_t kMostNamed = 8;
  const size_t named = std::min(names.size(), kMostNamed);
  const std::string more = names.size() > named ? fmt::format(" and {} more", names.size() - named) : "";
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(named), ", "), more);
}

/// A run and a digest of the state that its step began with.
struct StateOf {
  const OpenRun& run;
  uint64_t root;
};

/// Says that the states before step `step` differ, and in which arrays as far as that was kept; these go into `parts`.
/// `verb`: "begins".
std::string state_text(const char* verb, int64_t step, const StateOf& own, const StateOf& other,
                       std::vector<std::string>& parts) {
  const Parts here = parts_of(own.run.directory, step, own.root);
  const Parts there = parts_of(other.run.directory, step, other.root);
  if (here.empty() || there.empty()) {
    const fs::path& lacks = (here.empty() ? own : other).run.directory.path();
    return fmt::format("{} with another state; in which arrays cannot be told: {} has no line of that state", verb,
                       (lacks / elastic::kDigestsFile).string());
  }
  parts = differing(here, there);
  return fmt::format("{} with another state: {}", verb, names_text(parts));
}

}  // namespace

RunAudit audit_run(const fs::path& run) {
  const OpenRun opened = open_run(run);
  Batches batches = plan_of(opened);
  const Lineage& lineage = opened.lineage;
  RunAudit audit;
  audit.run_id = lineage.run_id;
  audit.directory = opened.directory.path();
  audit.steps = static_cast<int64_t>(lineage.commits.size());
  const elastic::Audit counted = or_throw(elastic::audit(lineage, batches, audit.steps));
  audit.total_steps = batches.expected_steps();
  audit.samples_expected = counted.expected;
  audit.samples_used_once = counted.used_once;
  audit.samples_repeated = counted.repeated;
  audit.samples_missing = counted.missing;
  audit.samples_dropped = counted.dropped;
  for (const CommitRecord& commit : lineage.commits) {
    if (commit.state) ++audit.states;
    if (commit.skipped) ++audit.steps_skipped;
  }
  elastic::replay_config(opened.directory, lineage, batches, audit);
  return audit;
}

RunComparison compare_runs(const fs::path& run, const fs::path& other) {
  const OpenRun one = open_run(run);
  const OpenRun two = open_run(other);
  const auto& own = one.lineage.commits;
  const auto& theirs = two.lineage.commits;
  RunComparison result;
  const auto differ = [&result](int64_t step, std::string how) {
    result.differs = step;
    result.how = std::move(how);
    return result;
  };
  const size_t both = std::min(own.size(), theirs.size());
  for (size_t i = 0; i < both; ++i) {
    const CommitRecord& a = own[i];
    const CommitRecord& b = theirs[i];
    result.steps = static_cast<int64_t>(i) + 1;
    if (a.state && b.state) ++result.states;
    if (a.digest != b.digest || a.size != b.size) return differ(a.step, "uses other samples");
    if (a.state && b.state && *a.state != *b.state)
      return differ(a.step, state_text("begins", a.step, {one, *a.state}, {two, *b.state}, result.parts));
    if (a.learning_rate != b.learning_rate)
      return differ(a.step, fmt::format("has another learning rate: {} and {}", a.learning_rate, b.learning_rate));
    if (a.skipped != b.skipped) return differ(a.step, "was left out in one of the two");
    if (a.loss != b.loss && !(a.loss != a.loss && b.loss != b.loss))
      return differ(a.step, fmt::format("has another loss: {} and {}", a.loss, b.loss));
  }
  if (own.size() != theirs.size()) {
    return differ(static_cast<int64_t>(both),
                  fmt::format("is in one of the two only: they have {} and {} steps", own.size(), theirs.size()));
  }
  const auto last = last_state_of(one.lineage);
  const auto their_last = last_state_of(two.lineage);
  if (last && their_last && *last != *their_last) {
    const auto steps = static_cast<int64_t>(both);
    return differ(steps - 1, state_text("ends", steps, {one, *last}, {two, *their_last}, result.parts));
  }
  if (last && their_last) return result;
  if (both > 0 && result.states > 0)
    result.how =
        "what the last step left was compared in one run or none ([run] digest_every, or a job that was stopped "
        "while no group stood), so that equal weights cannot be told beyond the step before";
  if (both > 0 && result.states == 0)
    result.how = "no step has a digest of its state in both ([run] digest_every), so that equal weights cannot be told";
  return result;
}

}  // namespace pliant
