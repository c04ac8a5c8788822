// Chooses by what the ledger says of each snapshot's state.
#include "elastic/best_snapshot.hpp"

#include <algorithm>
#include <cmath>

namespace pliant::elastic {

namespace {

bool is_better(const RunOptions& run, double value, double than) {
  return run.best_is == "most" ? value > than : value < than;
}

}  // namespace

std::optional<double> value_of_state(const Lineage& lineage, int64_t step, const std::string& name) {
  const auto finite_of = [&name](const std::map<std::string, double>& values) -> std::optional<double> {
    const auto found = values.find(name);
    if (found == values.end() || !std::isfinite(found->second)) return std::nullopt;
    return found->second;
  };
  const auto before = [](const Evaluation& one, int64_t wanted) { return one.step < wanted; };
  const auto at = std::lower_bound(lineage.evaluations.begin(), lineage.evaluations.end(), step, before);
  if (at != lineage.evaluations.end() && at->step == step && at->values.contains(name)) return finite_of(at->values);
  if (step < 1 || step > static_cast<int64_t>(lineage.commits.size())) return std::nullopt;
  const CommitRecord& last = lineage.commits[static_cast<size_t>(step - 1)];
  if (last.metrics.contains(name)) return finite_of(last.metrics);
  if (name == "loss" && std::isfinite(last.loss)) return last.loss;
  return std::nullopt;
}

std::optional<BestSnapshot> best_snapshot(const Lineage& lineage, const RunOptions& run,
                                          const std::function<bool(const SnapshotRecord&)>& is_there) {
  std::optional<BestSnapshot> best;
  if (run.keep_best.empty()) return best;
  for (auto at = lineage.snapshots.rbegin(); at != lineage.snapshots.rend(); ++at) {
    const std::optional<double> value = value_of_state(lineage, at->step, run.keep_best);
    if (!value) continue;
    if ((!best || is_better(run, *value, best->value)) && is_there(*at))
      best = BestSnapshot{at->file, at->step, run.keep_best, *value};
  }
  return best;
}

const Evaluation* better_evaluation(const Lineage& lineage, const RunOptions& run,
                                    const std::optional<BestSnapshot>& best) {
  const Evaluation* found = nullptr;
  std::optional<double> most;
  if (best) most = best->value;
  for (const Evaluation& one : lineage.evaluations) {
    const auto value = one.values.find(run.keep_best);
    if (value == one.values.end() || !std::isfinite(value->second)) continue;
    if (most && !is_better(run, value->second, *most)) continue;
    found = &one;
    most = value->second;
  }
  return found;
}

}  // namespace pliant::elastic
