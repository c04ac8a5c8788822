// Runs coordinators beside each other.
#include "coordinator/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "config/values/value.hpp"
#include "pliant/error.hpp"
#include "units.hpp"

namespace pliant::cli {

namespace {

/// `config` with this coordinator, which has its options from its own table alone.
Config chosen(const Config& config, const std::string& name) {
  if (config.use("coordinator") == name) return config;
  std::vector<std::string> sets = sets_for_plugin(config, "coordinator", name);
  std::erase_if(sets, [](const std::string& set) {
    return !set.starts_with("coordinator.use=") && !set.starts_with("coordinator.path=");
  });
  return config.with(sets);
}

/// One coordinator at budgets.
class Contestant {
 public:
  Contestant(const Config& config, const SimulationQuestion& question, const std::string& name)
      : config_(chosen(config, name)), question_(question), name_(config_.use("coordinator")) {}

  ComparedRun at(std::optional<uint64_t> budget) {
    ComparedRun made{name_, budget, true, "", std::nullopt};
    try {
      made.step = last_step(budget.value_or(0));
      if (budget && *budget > 0 && made.step->most > *budget) {
        made.refusal = fmt::format("gathers {} at its peak", text_of_bytes(static_cast<double>(made.step->most)));
      }
    } catch (const Error& error) {
      if (!first_error_) first_error_ = error;
      made.refusal = error.message();
      if (budget && error.status() == Status::kFailedPrecondition) look_without_budget(made);
    }
    return made;
  }
  /// Why it could not run at first; nothing: it always could.
  [[nodiscard]] const std::optional<Error>& first_error() const { return first_error_; }

 private:
  [[nodiscard]] SimulatedStep last_step(uint64_t budget) const {
    const bool is_its_own = static_cast<uint64_t>(config_.coordinator().budget.value_or(0)) == budget;
    const Config config = is_its_own ? config_ : config_.with({fmt::format("coordinator.budget={}", budget)});
    return simulate(config, question_).steps.back();
  }
  /// It keeps no such budget.
  void look_without_budget(ComparedRun& run) {
    try {
      if (!without_budget_) without_budget_ = last_step(0);
    } catch (const Error&) {  // then that it keeps no budget is what is to be said
      return;
    }
    run.keeps_budget = false;
    run.step = without_budget_;
    run.refusal.clear();
    if (without_budget_->most <= *run.budget) return;
    run.refusal = fmt::format("keeps no budget below the size of the model, and gathers {} at its peak",
                              text_of_bytes(static_cast<double>(without_budget_->most)));
  }

  Config config_;
  const SimulationQuestion& question_;
  std::string name_;
  std::optional<Error> first_error_;
  std::optional<SimulatedStep> without_budget_;
};

std::vector<std::optional<uint64_t>> budgets_of(const Config& config, const std::vector<uint64_t>& budgets) {
  if (!budgets.empty()) return {budgets.begin(), budgets.end()};
  const auto own = static_cast<uint64_t>(config.coordinator().budget.value_or(0));
  return {own > 0 ? std::optional<uint64_t>(own) : std::nullopt};
}

}  // namespace

std::vector<ComparedRun> compare_runs(const Config& config, const SimulationQuestion& question,
                                      const std::vector<std::string>& coordinators,
                                      const std::vector<uint64_t>& budgets) {
  std::vector<Contestant> all;
  all.reserve(coordinators.size());
  for (const std::string& name : coordinators) all.emplace_back(config, question, name);
  std::vector<ComparedRun> runs;
  for (const std::optional<uint64_t>& budget : budgets_of(config, budgets)) {
    for (Contestant& one : all) runs.push_back(one.at(budget));
  }
  const bool none = std::none_of(runs.begin(), runs.end(), [](const ComparedRun& run) { return run.step.has_value(); });
  if (none) throw *all.front().first_error();
  return runs;
}

std::vector<LeastBudget> least_budgets(const std::vector<ComparedRun>& runs, double times) {
  struct Seen {
    uint64_t fastest_ns = UINT64_MAX;
    size_t budgets = 0;
  };
  std::map<std::string, Seen> seen;
  for (const ComparedRun& run : runs) {
    if (!run.fits() || !run.budget) continue;
    Seen& of = seen[run.coordinator];
    of.fastest_ns = std::min(of.fastest_ns, run.step->time.all_ns);
    ++of.budgets;
  }
  std::vector<LeastBudget> least;
  for (const auto& [coordinator, of] : seen) {
    if (of.budgets < 2) continue;
    LeastBudget found{coordinator, UINT64_MAX};
    for (const ComparedRun& run : runs) {
      if (run.coordinator != coordinator || !run.fits() || !run.budget) continue;
      const auto time = static_cast<double>(run.step->time.all_ns);
      if (time <= times * static_cast<double>(of.fastest_ns)) found.budget = std::min(found.budget, *run.budget);
    }
    least.push_back(found);
  }
  return least;
}

}  // namespace pliant::cli
