// CoordinatorRules: holds what a coordinator answers against the rules of pliant/abi/coordinator.h, call by call. For
// hosts, which refuse what breaks them, and for tests of coordinators.
//
//   CoordinatorRules rules(model);
//   if (auto wrong = rules.enter(visit, actions)) refuse(*wrong);
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pliant/abi/coordinator.h"
#include "pliant/sdk/coordinator.hpp"

namespace pliant::sdk {

/// What an answer may be wrong about.
enum class CoordinatorRule {
  kForm,     ///< the action itself: its kind, its parameter, its flags
  kGather,   ///< of what is whole
  kWait,     ///< for what is not gathered
  kRelease,  ///< of what is not gathered, not waited for or still used
  kUse,      ///< a module is entered without what it uses
  kReduce,   ///< of a gradient that is not complete, or not there
  kGroup,    ///< a collective whose actions do not stand side by side
  kPlace,    ///< in the arena
  kBudget,   ///< more bytes are whole than there may be
  kTier,     ///< a load or a store, and there is no such tier
  kStepEnd   ///< something stays whole
};

namespace detail {

/// Parameters by their places, in runs of some dozens: one that comes or goes moves few others, and needs no memory of
/// its own. No two are at one place.
class PlacedParameters {
 public:
  struct One {
    uint64_t place;
    uint32_t number;
  };
  void clear() { runs_.clear(); }
  void add(uint64_t place, uint32_t number) {
    if (runs_.empty()) runs_.emplace_back().reserve(kMost + 1);
    const size_t at = run_of(place);
    std::vector<One>& run = runs_[at];
    run.insert(run.begin() + within(run, place), {place, number});
    if (run.size() <= kMost) return;
    const auto middle = run.begin() + kMost / 2;
    std::vector<One> behind(middle, run.end());
    run.erase(middle, run.end());
    runs_.insert(runs_.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::move(behind));
  }
  void remove(uint64_t place) {
    if (runs_.empty()) return;
    const size_t at = run_of(place);
    std::vector<One>& run = runs_[at];
    const auto one = run.begin() + within(run, place);
    if (one == run.end() || one->place != place) return;
    run.erase(one);
    if (run.empty() && runs_.size() > 1) runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  /// At that place or the next behind it; nullptr: there is none.
  [[nodiscard]] const One* from(uint64_t place) const {
    if (runs_.empty()) return nullptr;
    const size_t at = run_of(place);
    const auto one = within(runs_[at], place);
    if (static_cast<size_t>(one) < runs_[at].size()) return &runs_[at][static_cast<size_t>(one)];
    return at + 1 < runs_.size() ? &runs_[at + 1].front() : nullptr;
  }
  /// The last one before that place; likewise.
  [[nodiscard]] const One* before(uint64_t place) const {
    if (runs_.empty()) return nullptr;
    const size_t at = run_of(place);  // runs but the first begin at or before it
    const auto one = static_cast<size_t>(within(runs_[at], place));
    if (one > 0) return &runs_[at][one - 1];
    return at > 0 ? &runs_[at - 1].back() : nullptr;
  }

 private:
  static constexpr std::ptrdiff_t kMost = 64;
  /// The last that begins there or before, or the first.
  [[nodiscard]] size_t run_of(uint64_t place) const {
    if (runs_.size() == 1) return 0;
    const auto after =
        std::upper_bound(runs_.begin() + 1, runs_.end(), place,
                         [](uint64_t at, const std::vector<One>& run) { return at < run.front().place; });
    return static_cast<size_t>(after - runs_.begin()) - 1;
  }
  static std::ptrdiff_t within(const std::vector<One>& run, uint64_t place) {
    return std::lower_bound(run.begin(), run.end(), place, [](const One& one, uint64_t at) { return one.place < at; }) -
           run.begin();
  }
  std::vector<std::vector<One>> runs_;  // ascending; none is empty but one that is alone
};

}  // namespace detail

/// Is told every call and what was answered. A call returns nullopt, or in words what is wrong, with the visit and the
/// parameter; then nothing of that answer counts, only what the program did. The program's own calls are taken as
/// right: whoever tells them has seen to it that a module is left as often as it was entered. One thread at a time.
class CoordinatorRules {
 public:
  using Wrong = std::optional<std::string>;

  explicit CoordinatorRules(Model model) : model_(std::move(model)), parameters_(model_.parameters.size()) {
    for (uint32_t i = 0; i < model_.modules.size(); ++i) used_.push_back(model_.used_by(i));
  }
  /// Throws Failure(PLIANT_INVALID_ARGUMENT) for a number that is in neither table.
  explicit CoordinatorRules(const pliant_model& model) : CoordinatorRules(detail::model_of(&model)) {}

  /// Between two passes.
  void set_module_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external) {
    model_.modules[module].own.assign(own.begin(), own.end());
    model_.modules[module].external.assign(external.begin(), external.end());
    for (uint32_t i = 0; i < used_.size(); ++i) {  // a leaf uses what is below it
      if (i == module || model_.modules[i].leaf) used_[i] = model_.used_by(i);
    }
  }

  [[nodiscard]] Wrong begin_pass(bool with_gradient, std::span<const pliant_action> actions) {
    with_gradient_ = with_gradient;
    for (State& one : parameters_) one.complete = one.reduced = false;
    open_ = 0;
    return judged([] { return "at the begin of a pass"; }, actions, [] { return Wrong(); });
  }

  [[nodiscard]] Wrong enter(const Visit& visit, std::span<const pliant_action> actions) {
    const std::vector<uint32_t>& used = used_[visit.module];
    const auto missing = [&]() -> Wrong {
      for (const uint32_t number : used) {
        const State& one = parameters_[number];
        if (one.whole && one.waited_for) continue;
        return broken(Rule::kUse, "the module uses " + name(number) + ", which " +
                                      (one.whole ? "nothing has waited for" : "is not gathered"));
      }
      return std::nullopt;
    };
    Wrong wrong = judged([&] { return words(visit, "entering"); }, actions, missing);
    for (const uint32_t number : used) ++parameters_[number].users;
    return wrong;
  }

  [[nodiscard]] Wrong leave(const Visit& visit, std::span<const pliant_action> actions) {
    for (const uint32_t number : used_[visit.module]) {
      if (parameters_[number].users > 0) --parameters_[number].users;
    }
    complete(visit.complete);
    return judged([&] { return words(visit, "leaving"); }, actions, [] { return Wrong(); });
  }

  [[nodiscard]] Wrong end_pass(std::span<const pliant_action> actions) {
    Wrong wrong = judged([] { return "at the end of a pass"; }, actions, [] { return Wrong(); });
    for (State& one : parameters_) one.complete = false;
    open_ = 0;
    return wrong;
  }

  /// Between two passes.
  [[nodiscard]] Wrong drop_trace(std::span<const pliant_action> actions) {
    return judged([] { return "where its trace is dropped"; }, actions, [] { return Wrong(); });
  }

  /// Modules that were not left are given up.
  [[nodiscard]] Wrong end_step(std::span<const pliant_action> actions) {
    for (State& one : parameters_) {
      one.users = 0;
      one.complete = false;
    }
    open_ = 0;
    const auto left_whole = [this]() -> Wrong {
      for (uint32_t number = 0; number < parameters_.size(); ++number) {
        if (parameters_[number].whole) return broken(Rule::kStepEnd, name(number) + " is still whole");
      }
      return std::nullopt;
    };
    ends_step_ = true;
    Wrong wrong = judged([] { return "at the end of a step"; }, actions, left_whole);
    ends_step_ = false;
    return wrong;
  }

  /// The host has freed everything and given the pass up.
  void reset() {
    std::fill(parameters_.begin(), parameters_.end(), State{});
    placed_.clear();
    whole_bytes_ = 0;
    open_ = 0;
  }

  /// What the latest answer that was wrong is wrong about.
  [[nodiscard]] CoordinatorRule broken() const { return broken_; }
  /// Gathered, or on its way.
  [[nodiscard]] bool is_whole(uint32_t parameter) const { return parameters_[parameter].whole; }
  /// In this pass.
  [[nodiscard]] bool is_reduced(uint32_t parameter) const { return parameters_[parameter].reduced; }
  [[nodiscard]] uint64_t whole_bytes() const { return whole_bytes_; }
  /// What must be whole while the module is entered, ascending.
  [[nodiscard]] const std::vector<uint32_t>& used_by(uint32_t module) const { return used_[module]; }
  [[nodiscard]] const Model& model() const { return model_; }

 private:
  using Rule = CoordinatorRule;
  struct State {
    uint64_t place = PLIANT_ANY_PLACE;
    uint32_t users = 0;  ///< modules that are entered, as often as they are
    bool whole = false;
    bool waited_for = false;
    bool complete = false;
    bool reduced = false;
  };

  /// All that are complete and not reduced are listed, ascending: so many more than before are new. Mostly the lowest,
  /// as backward goes.
  void complete(std::span<const uint32_t> listed) {
    for (const uint32_t number : listed) {
      if (listed.size() == open_) break;
      State& one = parameters_[number];
      if (one.complete) continue;
      one.complete = true;
      open_ += one.reduced ? 0 : 1;
    }
  }

  [[nodiscard]] std::string name(uint32_t number) const { return model_.name_of_parameter(number); }
  [[nodiscard]] std::string words(const Visit& visit, const char* verb) const {
    return std::string(verb) + " " + model_.name_of_module(visit.module) +
           (visit.backward    ? " backward"
            : visit.recompute ? " forward to recompute it"
                              : " forward");
  }

  /// Takes the actions one after the other, then asks `after`; puts all of it back when something is wrong, which
  /// `where` says the place of.
  template <class Where, class After>
  Wrong judged(const Where& where, std::span<const pliant_action> actions, const After& after) {
    undo_.clear();
    runs_.clear();
    largest_run_ = 0;
    const uint64_t bytes_before = whole_bytes_;
    Wrong wrong;
    for (size_t i = 0; i < actions.size() && !wrong; ++i) {
      wrong = taken(actions[i], i > 0 ? &actions[i - 1] : nullptr);
      if (wrong) wrong = "action " + std::to_string(i) + ": " + *wrong;
    }
    if (!wrong) wrong = after();
    if (!wrong) return wrong;
    for (auto one = undo_.rbegin(); one != undo_.rend(); ++one) set(one->first, one->second);
    whole_bytes_ = bytes_before;
    return std::string(where()) + ", " + *wrong;
  }

  Wrong taken(const pliant_action& action, const pliant_action* before) {
    if (action.kind == PLIANT_ACTION_DROP_TRACE || action.kind == PLIANT_ACTION_BOUND_WAITS) {
      if (action.parameter == PLIANT_NO_PARAMETER && action.flags == 0) return std::nullopt;
      return broken(Rule::kForm, "an action without a parameter names one or has flags");
    }
    if (action.kind < PLIANT_ACTION_GATHER || action.kind > PLIANT_ACTION_BOUND_WAITS) {
      return broken(Rule::kForm, "there is no action of kind " + std::to_string(action.kind));
    }
    if (action.parameter >= parameters_.size()) {
      return broken(Rule::kForm, "the model has no " + name(action.parameter));
    }
    const uint64_t known = action.kind == PLIANT_ACTION_GATHER   ? uint64_t{PLIANT_ACTION_PREFETCH}
                           : action.kind == PLIANT_ACTION_REDUCE ? model_.reduce_flags
                                                                 : 0;
    if ((action.flags & ~known) != 0) {
      return broken(Rule::kForm,
                    "flags " + std::to_string(action.flags) + " of " + name(action.parameter) + " mean nothing here");
    }
    State& one = parameters_[action.parameter];
    undo_.emplace_back(action.parameter, one);
    switch (action.kind) {
      case PLIANT_ACTION_GATHER:
        return gathered(action, before, one);
      case PLIANT_ACTION_WAIT:
        if (!one.whole) {
          return broken(Rule::kWait, "it waits for " + name(action.parameter) + ", which is not gathered");
        }
        one.waited_for = true;
        return std::nullopt;
      case PLIANT_ACTION_RELEASE:
        return released(action.parameter, one);
      case PLIANT_ACTION_REDUCE:
        return reduced(action, before, one);
      default:
        if (action.place < model_.tiers) return std::nullopt;
        return broken(Rule::kTier, "it moves " + name(action.parameter) + " to or from tier " +
                                       std::to_string(action.place) + ", and there is no " +
                                       (model_.tiers == 0 ? "tier" : "such tier"));
    }
  }

  Wrong gathered(const pliant_action& action, const pliant_action* before, State& one) {
    const Parameter& parameter = model_.parameters[action.parameter];
    if (one.whole) return broken(Rule::kGather, "it gathers " + name(action.parameter) + ", which is whole already");
    if (!opens_run(action, before)) return torn(action);
    if (model_.budget > 0 && parameter.bytes > model_.budget - std::min(model_.budget, whole_bytes_)) {
      return broken(Rule::kBudget, "it gathers the " + std::to_string(parameter.bytes) + " bytes of " +
                                       name(action.parameter) + " while " + std::to_string(whole_bytes_) +
                                       " are whole, and the budget is " + std::to_string(model_.budget));
    }
    if (action.place != PLIANT_ANY_PLACE) {
      if (Wrong wrong = misplaced(action)) return wrong;
    }
    State whole = one;
    whole.whole = true;
    whole.waited_for = false;
    whole.place = action.place;
    set(action.parameter, whole);
    whole_bytes_ += parameter.bytes;
    return std::nullopt;
  }

  Wrong misplaced(const pliant_action& action) {
    const uint64_t bytes = model_.parameters[action.parameter].bytes;
    const auto because = [&](const std::string& why) {
      return broken(Rule::kPlace,
                    "it places " + name(action.parameter) + " at byte " + std::to_string(action.place) + why);
    };
    if (action.place % 256 != 0) return because(", which is not a multiple of 256");
    if (model_.budget > 0 && (action.place > model_.budget || bytes > model_.budget - action.place)) {
      return because(", past the budget of " + std::to_string(model_.budget));
    }
    if (bytes == 0) return std::nullopt;
    const auto* const after = placed_.from(action.place);
    if (after != nullptr && after->place - action.place < bytes) {
      return because(", where " + name(after->number) + " lies");
    }
    const auto* const before = placed_.before(action.place);
    if (before == nullptr || action.place - before->place >= model_.parameters[before->number].bytes) {
      return std::nullopt;
    }
    return because(", where " + name(before->number) + " lies");
  }

  /// State of a parameter, and what is kept beside it.
  void set(uint32_t number, const State& to) {
    State& one = parameters_[number];
    const bool has_bytes = model_.parameters[number].bytes > 0;
    if (has_bytes && one.whole && one.place != PLIANT_ANY_PLACE) placed_.remove(one.place);
    if (has_bytes && to.whole && to.place != PLIANT_ANY_PLACE) placed_.add(to.place, number);
    open_ -= one.complete && !one.reduced ? 1 : 0;
    open_ += to.complete && !to.reduced ? 1 : 0;
    one = to;
  }

  Wrong released(uint32_t number, State& one) {
    const auto because = [&](const char* why) {
      return broken(Rule::kRelease, "it releases " + name(number) + ", which " + why);
    };
    if (!one.whole) return because("is not gathered");
    if (!one.waited_for) return because("nothing has waited for");
    if (one.users > 0) return because("a module that is still entered uses");
    if (model_.parameters[number].external && !ends_step_) {
      return because("modules may use unannounced until the step ends");
    }
    State away = one;
    away.whole = away.waited_for = false;
    away.place = PLIANT_ANY_PLACE;
    set(number, away);
    whole_bytes_ -= model_.parameters[number].bytes;
    return std::nullopt;
  }

  Wrong reduced(const pliant_action& action, const pliant_action* before, State& one) {
    const auto because = [&](const char* why) {
      return broken(Rule::kReduce, "it reduces the gradient of " + name(action.parameter) + why);
    };
    if (model_.parameters[action.parameter].frozen) return because(", which is frozen");
    if (!with_gradient_) return because(" in a pass without gradients");
    if (one.reduced) return because(" for the second time");
    if (!one.complete) return because(", which is not complete");
    if (!opens_run(action, before)) return torn(action);
    const bool goes_on = before != nullptr && before->kind == action.kind && before->group == action.group;
    if (goes_on && before->flags != action.flags) {
      return broken(Rule::kForm, "reduces of group " + std::to_string(action.group) + " have different flags");
    }
    one.reduced = true;
    --open_;
    return std::nullopt;
  }

  /// False when the group of this action stood in the list before, and others between.
  bool opens_run(const pliant_action& action, const pliant_action* before) {
    if (before != nullptr && before->kind == action.kind && before->group == action.group) return true;
    const uint64_t run = uint64_t{action.kind} << 32 | action.group;
    if (run <= largest_run_ && std::find(runs_.begin(), runs_.end(), run) != runs_.end()) return false;
    largest_run_ = std::max(largest_run_, run);
    runs_.push_back(run);
    return true;
  }
  Wrong torn(const pliant_action& action) {
    return broken(Rule::kGroup, "other actions stand between those of group " + std::to_string(action.group) +
                                    ", of which " + name(action.parameter) + " is");
  }
  Wrong broken(Rule rule, std::string text) {
    broken_ = rule;
    return text;
  }

  Model model_;
  std::vector<State> parameters_;
  std::vector<std::vector<uint32_t>> used_;  // by module
  detail::PlacedParameters placed_;          // what is whole and has bytes
  std::vector<std::pair<uint32_t, State>> undo_;
  std::vector<uint64_t> runs_;  // groups of the list so far
  uint64_t largest_run_ = 0;
  uint64_t whole_bytes_ = 0;
  size_t open_ = 0;  // gradients that are complete and not reduced
  bool with_gradient_ = false;
  bool ends_step_ = false;
  Rule broken_ = Rule::kForm;
};

}  // namespace pliant::sdk
