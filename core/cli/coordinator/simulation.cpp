// Plays steps and adds up what was answered.
#include "coordinator/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "sharded/arena_books.hpp"
#include "sharded/rehearsal.hpp"
#include "sharded/shards/exchange.hpp"

namespace pliant::cli {

namespace {

const char* word_of(sharded::RehearsedCall::Kind kind) {
  constexpr const char* kWords[] = {"begin_pass", "enter", "leave", "end_pass", "end_step"};
  return kWords[static_cast<size_t>(kind)];
}

std::string words_of(const pliant_action& action, const sharded::ModelTables& model) {
  if (action.kind == PLIANT_ACTION_DROP_TRACE) return "drop trace";
  if (action.kind == PLIANT_ACTION_BOUND_WAITS) return fmt::format("bound waits {}", action.place);
  const std::string& name = model.parameter(action.parameter).name;
  switch (action.kind) {
    case PLIANT_ACTION_GATHER:
      return fmt::format("gather{} {}", (action.flags & PLIANT_ACTION_PREFETCH) != 0 ? " ahead" : "", name);
    case PLIANT_ACTION_WAIT:
      return "wait " + name;
    case PLIANT_ACTION_RELEASE:
      return "release " + name;
    default:
      return fmt::format("reduce{} {}", (action.flags & PLIANT_ACTION_LINGER) != 0 ? " lingering" : "", name);
  }
}

/// What the program did between each call and its next, in nanoseconds, inside of passes. Calls by hand are no calls
/// of a step that is played.
std::vector<uint64_t> recorded_compute(const sharded::TracedStep& step) {
  using Kind = sharded::TracedCall::Kind;
  std::vector<uint64_t> made;
  for (const std::span<const sharded::TracedCall> calls : step) {
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].kind == Kind::kByHand) continue;
      const bool is_visit = calls[i].kind == Kind::kEnter || calls[i].kind == Kind::kLeave;
      const double until = is_visit && i + 1 < calls.size() ? calls[i + 1].began - calls[i].ended : 0;
      made.push_back(static_cast<uint64_t>(std::max(until, 0.0) * 1e3));
    }
  }
  return made;
}

/// Micro-batches that a pass is over, at most.
size_t most_at_once(const SimulationQuestion& question) {
  return question.recorded == nullptr ? 1 : sharded::most_micro_batches(*question.recorded);
}

/// Adds up what a coordinator answers.
class Adding {
 public:
  Adding(const Config& config, const SimulationQuestion& question, Simulation& to)
      : model_(question.model),
        types_{sharded::dtype_of(config.coordinator().compute_dtype),
               sharded::dtype_of(config.coordinator().reduce_dtype), config.run().on_nonfinite != "ignore", true},
        books_(model_, question.workers, types_, static_cast<uint64_t>(config.coordinator().budget.value_or(0)),
               most_at_once(question)),
        clock_(
            model_,
            {.world_size = question.workers,
             .whole = types_.whole,
             .reduce = types_.reduce,
             .looks_at_gradients = types_.looks_at_gradients,
             .deterministic = config.run().deterministic,
             .budget = static_cast<uint64_t>(config.coordinator().budget.value_or(0)),
             .rounds = question.recorded != nullptr ? sharded::micro_batches_of(*question.recorded) : question.passes,
             .micro_batches = most_at_once(question)},
            step_costs(question.costs)),
        compute_(model_, question.costs),
        keeps_lists_(question.lists),
        to_(to) {
    if (question.computes_as_recorded) recorded_ns_ = recorded_compute(*question.recorded);
  }

  void begin(int step) {
    to_.steps.emplace_back();
    clock_.begin_step();
    number_ = step;
    calls_ = 0;
  }
  void hear(const sharded::RehearsedCall& call) {
    SimulatedStep& step = to_.steps.back();
    books_.hear(call);
    step.most = std::max(step.most, books_.take_most());
    const bool computes = call.kind == sharded::RehearsedCall::Kind::kEnter;
    const uint64_t by_flops = computes ? compute_.of(*call.module, call.backward) : 0;
    clock_.hear(call, calls_ < recorded_ns_.size() ? recorded_ns_[calls_] : by_flops);
    ++calls_;
    step.time = clock_.step();
    count(call.actions, step);
    if (call.lost_to_gaps) step.lost_to_gaps = std::max(step.lost_to_gaps.value_or(0), *call.lost_to_gaps);
    if (keeps_lists_ && !call.actions.empty()) keep(call);
  }
  [[nodiscard]] const std::vector<uint64_t>& gather_costs() const { return clock_.gather_costs(); }

 private:
  [[nodiscard]] uint64_t bytes(uint32_t parameter) const {
    return model_.parameter(parameter).elements * sharded::bytes_of(types_.whole);
  }
  void count(std::span<const pliant_action> actions, SimulatedStep& step) const {
    std::array<std::optional<uint32_t>, PLIANT_ACTION_BOUND_WAITS + 1> groups;  // the last one of each kind
    for (const pliant_action& action : actions) {
      const bool is_next = std::exchange(groups[action.kind], action.group) != action.group;
      if (action.kind == PLIANT_ACTION_REDUCE) step.reduces += is_next ? 1 : 0;
      if (action.kind != PLIANT_ACTION_GATHER) continue;
      step.collectives += is_next ? 1 : 0;
      ++step.gathered;
      step.ahead += (action.flags & PLIANT_ACTION_PREFETCH) != 0 ? 1 : 0;
      step.bytes += bytes(action.parameter);
    }
  }
  void keep(const sharded::RehearsedCall& call) {
    HeardCall heard{number_, word_of(call.kind), {}};
    if (call.module) {
      heard.call += fmt::format(" {}{}", model_.modules()[*call.module].name, call.backward ? ", backward" : "");
    }
    for (const pliant_action& action : call.actions) heard.actions.push_back(words_of(action, model_));
    to_.calls.push_back(std::move(heard));
  }

  const sharded::ModelTables& model_;
  const sharded::ArenaBooks::Types types_;
  sharded::ArenaBooks books_;
  sharded::StepClock clock_;
  const ComputeTimes compute_;
  const bool keeps_lists_;
  std::vector<uint64_t> recorded_ns_;  ///< by call of a step, where that counts
  size_t calls_ = 0;                   ///< of the step
  Simulation& to_;
  int number_ = 0;
};

}  // namespace

Simulation simulate(const Config& config, const SimulationQuestion& question) {
  Simulation made;
  made.coordinator = config.use("coordinator");
  Adding adding(config, question, made);
  const auto begins = [&adding](int step) { adding.begin(step); };
  const auto hears = [&adding](const sharded::RehearsedCall& call) { adding.hear(call); };
  const auto costs = [&adding] { return adding.gather_costs(); };
  if (question.recorded != nullptr) {
    const std::vector<sharded::TracedStep> steps(static_cast<size_t>(question.steps), *question.recorded);
    sharded::simulate(config, question.model, question.workers, steps, begins, hears, std::nullopt, costs);
  } else {
    sharded::simulate(config, question.model, question.workers, {question.steps, question.passes}, begins, hears,
                      costs);
  }
  return made;
}

}  // namespace pliant::cli
