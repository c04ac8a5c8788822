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
    throw Error(Status::kNotFound, elastic::why_no_ledger(run), Origin::kInput);
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
    throw Error(Status::kDataLoss, fmt::format("{}: its ledger does not match its config.toml and dataset.bin: it was "
                                               "written for other data or options (fingerprint {} instead of {})",
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

/// "step 4", "steps 4..7"; `end` is after the last.
std::string steps_text(int64_t first, int64_t end) {
  return end - first == 1 ? fmt::format("step {}", first) : fmt::format("steps {}..{}", first, end - 1);
}

/// In what a step differs that began, as far as is known, with one state; empty: in nothing.
std::string difference(const CommitRecord& a, const CommitRecord& b) {
  if (a.learning_rate != b.learning_rate)
    return fmt::format("has another learning rate: {} and {}", a.learning_rate, b.learning_rate);
  if (a.skipped != b.skipped) return "was skipped in one of the two runs";
  if (a.loss != b.loss && !(a.loss != a.loss && b.loss != b.loss))
    return fmt::format("has another loss: {} and {}", a.loss, b.loss);
  return {};
}

class Comparer {
 public:
  Comparer(OpenRun one, OpenRun two)
      : one_(std::move(one)),
        two_(std::move(two)),
        both_(static_cast<int64_t>(std::min(one_.lineage.commits.size(), two_.lineage.commits.size()))) {}

  RunComparison compare() {
    const bool found = compare_steps() || compare_ends();
    if (!found) say_what_was_not_compared();
    return std::move(result_);
  }

 private:
  /// A digest of one state in each of the two.
  struct Roots {
    uint64_t own;
    uint64_t other;
    [[nodiscard]] bool differ() const { return own != other; }
  };

  [[nodiscard]] const CommitRecord& own(int64_t step) const { return one_.lineage.commits[static_cast<size_t>(step)]; }
  [[nodiscard]] const CommitRecord& other(int64_t step) const {
    return two_.lineage.commits[static_cast<size_t>(step)];
  }
  /// Of the state that `step` began with.
  [[nodiscard]] std::optional<Roots> roots_at(int64_t step) const {
    if (!own(step).state || !other(step).state) return std::nullopt;
    return Roots{*own(step).state, *other(step).state};
  }
  /// Of the state after so many steps.
  template <class Lineage>
  [[nodiscard]] static std::optional<uint64_t> state_after_steps(const Lineage& lineage, int64_t steps) {
    const auto place = static_cast<size_t>(steps);
    return place < lineage.commits.size() ? lineage.commits[place].state : last_state_of(lineage);
  }
  /// Of the state after the last step that both have.
  [[nodiscard]] std::optional<Roots> roots_at_end() const {
    const auto last = state_after_steps(one_.lineage, both_);
    const auto their_last = state_after_steps(two_.lineage, both_);
    if (both_ == 0 || !last || !their_last) return std::nullopt;
    return Roots{*last, *their_last};
  }
  [[nodiscard]] bool has_one_length() const { return one_.lineage.commits.size() == two_.lineage.commits.size(); }

  bool differ(int64_t step, std::string how) {
    result_.differs = step;
    result_.how = std::move(how);
    return true;
  }

  /// Says that the states after `steps` steps differ, and in which arrays as far as that was kept. `verb`: "begins".
  std::string state_text(const char* verb, int64_t steps, const Roots& roots) {
    const Parts here = parts_of(one_.directory, steps, roots.own);
    const Parts there = parts_of(two_.directory, steps, roots.other);
    if (here.empty() || there.empty()) {
      const fs::path& lacks = (here.empty() ? one_ : two_).directory.path();
      return fmt::format("{} with another state; the arrays are unknown because {} has no line for that state", verb,
                         (lacks / elastic::kDigestsFile).string());
    }
    result_.parts = differing(here, there);
    result_.parts_step = steps;
    return fmt::format("{} with another state: {}", verb, names_text(result_.parts));
  }

  /// Before `step`, whose state differs: those that may have begun with another state, too.
  [[nodiscard]] std::string unseen_before(int64_t step) const {
    const int64_t first = last_same_ + 1;
    if (first >= step) return {};
    return fmt::format("; {} before it could not be compared: no digest in both runs", steps_text(first, step));
  }

  /// Of a difference that `step` has in something else: the arrays that differ at the next digest.
  std::string state_after(int64_t step) {
    for (int64_t next = step + 1; next < both_; ++next) {
      const std::optional<Roots> roots = roots_at(next);
      if (!roots) continue;
      return fmt::format("; step {}, the next with a digest in both runs, {}", next,
                         roots->differ() ? state_text("begins", next, *roots) : "begins with the same state");
    }
    if (const std::optional<Roots> roots = roots_at_end()) {
      return fmt::format("; step {}, the last{}, {}", both_ - 1, has_one_length() ? "" : " of both",
                         roots->differ() ? state_text("ends", both_, *roots) : "ends with the same state");
    }
    return "; the arrays are unknown because no later step has a digest in both runs";
  }

  bool compare_steps() {
    for (int64_t step = 0; step < both_; ++step) {
      const CommitRecord& a = own(step);
      const CommitRecord& b = other(step);
      const std::optional<Roots> roots = roots_at(step);
      result_.steps = step + 1;
      if (roots) ++result_.states;
      if (a.digest != b.digest || a.size != b.size) return differ(step, "uses other samples");
      if (roots && roots->differ()) return differ(step, state_text("begins", step, *roots) + unseen_before(step));
      if (roots) last_same_ = step;
      if (const std::string how = difference(a, b); !how.empty()) return differ(step, how + state_after(step));
    }
    return false;
  }

  bool compare_ends() {
    const std::optional<Roots> roots = roots_at_end();
    if (roots && roots->differ()) {
      return differ(both_ - 1, state_text("ends", both_, *roots) + unseen_before(both_ - 1));
    }
    if (has_one_length()) return false;
    return differ(both_, fmt::format("exists in only one of the two runs: they have {} and {} steps",
                                     one_.lineage.commits.size(), two_.lineage.commits.size()));
  }

  void say_what_was_not_compared() {
    if (both_ == 0) {
      const std::string& here = one_.lineage.fingerprint;
      const std::string& there = two_.lineage.fingerprint;
      result_.how =
          here == there
              ? "neither run has a step: only data, seed and batches were compared"
              : fmt::format("neither run has a step, and they differ in data, seed or batches (fingerprints {} and {})",
                            here, there);
    } else if (!roots_at_end()) {
      result_.how =
          result_.states == 0
              ? "no step has a digest of its state in both runs ([run] digest_every), so it is unknown whether the "
                "weights are equal"
              : "the final states were not compared in both runs ([run] digest_every, or a job that was stopped while "
                "no group was formed), so it is unknown whether the weights are equal after the last step";
    }
  }

  OpenRun one_;
  OpenRun two_;
  int64_t both_;            ///< steps that both have
  int64_t last_same_ = -1;  ///< the last step that began with one state in both
  RunComparison result_;
};

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
  OpenRun one = open_run(run);
  return Comparer(std::move(one), open_run(other)).compare();
}

}  // namespace pliant
