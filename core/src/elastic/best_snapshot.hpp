// The best snapshot of a run, by a metric of the program's own ([run] keep_best).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "elastic/ledger.hpp"
#include "pliant/config.hpp"
#include "pliant/metric.hpp"

namespace pliant::elastic {

/// The value `name` of the state after `step` steps: of its evaluation, or else of the step that led to it, of which
/// "loss" is the loss. nullopt where there is none, or it is not finite.
[[nodiscard]] std::optional<double> value_of_state(const Lineage& lineage, int64_t step, const std::string& name);

/// The best one of those that are there, the newest of equal ones; nullopt where [run] asks for none, or no state has
/// a value.
[[nodiscard]] std::optional<BestSnapshot> best_snapshot(const Lineage& lineage, const RunOptions& run,
                                                        const std::function<bool(const SnapshotRecord&)>& is_there);

/// The evaluation with the best value that [run] keep_best asks for, where it is better than that of `best`, the best
/// snapshot, or there is none; nullptr otherwise.
[[nodiscard]] const Evaluation* better_evaluation(const Lineage& lineage, const RunOptions& run,
                                                  const std::optional<BestSnapshot>& best);

}  // namespace pliant::elastic
