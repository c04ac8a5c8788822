// Tables of a simulation and of a comparison.
#include <fmt/format.h>

#include <algorithm>

#include "coordinator/views.hpp"
#include "output.hpp"
#include "units.hpp"

namespace pliant::cli {

namespace {

/// A step that takes so much longer than the fastest is near it.
constexpr double kNear = 1.05;

std::string tenths_of_mebibytes(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 1048576.0);
}

std::string nanoseconds_text(uint64_t nanoseconds) {
  return text_of_seconds(static_cast<double>(nanoseconds) * 1e-9);
}

std::string collective_text(const CollectiveCost& cost) {
  return fmt::format("{} and {:.3g} GB/s", nanoseconds_text(cost.start_ns), cost.bytes_per_s / 1e9);
}

std::string costs_text(const SimulationQuestion& question) {
  const SimulationCosts& costs = question.costs;
  const bool alike =
      costs.gather.start_ns == costs.reduce.start_ns && costs.gather.bytes_per_s == costs.reduce.bytes_per_s;
  const std::string collectives =
      alike ? fmt::format("a collective {}", collective_text(costs.gather))
            : fmt::format("a gather {}, a reduce {}", collective_text(costs.gather), collective_text(costs.reduce));
  const std::string compute = question.computes_as_recorded ? std::string("compute as recorded")
                                                            : fmt::format("{:.4g} Tflop/s, {:.0f} tokens a pass",
                                                                          costs.flops / 1e12, costs.tokens);
  return fmt::format("costs from {}: {}; {}\n", costs.from, collectives, compute);
}

std::string times_of_bound(const sharded::StepTime& time) {
  const auto bound = static_cast<double>(time.bound_ns());
  return bound == 0 ? "-" : fmt::format("{:.2f}", static_cast<double>(time.all_ns) / bound);
}

std::vector<std::string> row_of(const ComparedRun& run) {
  std::vector<std::string> row{run.coordinator, run.budget ? text_of_bytes(static_cast<double>(*run.budget)) : "none"};
  if (!run.step) {
    row.insert(row.end(), {"refused", "", "", "", "", "", ""});
    return row;
  }
  const SimulatedStep& step = *run.step;
  row.insert(row.end(),
             {grouped(step.gathered), tenths_of_mebibytes(step.bytes), tenths_of_mebibytes(step.most),
              run.fits() ? nanoseconds_text(step.time.all_ns) : "over budget", nanoseconds_text(step.time.compute_ns),
              nanoseconds_text(step.time.transfer_ns()), run.fits() ? times_of_bound(step.time) : ""});
  return row;
}

}  // namespace

std::string simulation_text(const Simulation& simulation, const SimulationQuestion& question) {
  std::string text;
  for (const HeardCall& one : simulation.calls)
    text += fmt::format("step {}: {}: {}\n", one.step + 1, one.call, fmt::join(one.actions, "; "));
  if (!text.empty()) text += "\n";
  std::vector<std::vector<std::string>> rows{{"step", "collectives", "gathered", "prefetched", "bytes", "peak gathered",
                                              "reduces", "time", "compute", "transfer"}};
  const bool has_places = std::any_of(simulation.steps.begin(), simulation.steps.end(),
                                      [](const SimulatedStep& one) { return one.lost_to_gaps.has_value(); });
  if (has_places) rows.front().push_back("lost to gaps");
  for (size_t i = 0; i < simulation.steps.size(); ++i) {
    const SimulatedStep& one = simulation.steps[i];
    rows.push_back({std::to_string(i + 1), grouped(one.collectives), grouped(one.gathered), grouped(one.ahead),
                    tenths_of_mebibytes(one.bytes), tenths_of_mebibytes(one.most), grouped(one.reduces),
                    nanoseconds_text(one.time.all_ns), nanoseconds_text(one.time.compute_ns),
                    nanoseconds_text(one.time.transfer_ns())});
    if (has_places) rows.back().push_back(one.lost_to_gaps ? tenths_of_mebibytes(*one.lost_to_gaps) : "");
  }
  return text + table(rows, 0) + "\n" + costs_text(question);
}

std::string comparison_text(const std::vector<ComparedRun>& runs, const SimulationQuestion& question) {
  std::vector<std::vector<std::string>> rows{
      {"coordinator", "budget", "gathered", "bytes", "peak gathered", "time", "compute", "transfer", "time / bound"}};
  for (const ComparedRun& run : runs) rows.push_back(row_of(run));
  std::string text = table(rows, 1) + "\n";
  for (const ComparedRun& run : runs) {
    if (run.refusal.empty()) continue;
    const std::string where =
        run.budget ? fmt::format(" at {}", text_of_bytes(static_cast<double>(*run.budget))) : std::string();
    text += fmt::format("{}{}: {}\n", run.coordinator, where, run.refusal);
  }
  for (const LeastBudget& one : least_budgets(runs, kNear)) {
    text += fmt::format("{}: {} is the smallest budget here whose step is within {:.0f} % of the fastest\n",
                        one.coordinator, text_of_bytes(static_cast<double>(one.budget)), 100 * (kNear - 1));
  }
  return text + costs_text(question);
}

}  // namespace pliant::cli
