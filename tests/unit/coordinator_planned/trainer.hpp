// A program that trains with a Planner, and a host that holds every answer against the rules of the kind.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "planner.hpp"
#include "pliant/sdk/coordinator_rules.hpp"

namespace pliant::coordinator::planned::test {

/// Module 0 without parameters over layers that have one parameter each, of so many bytes.
inline sdk::Model layers_of(const std::vector<uint64_t>& bytes, uint64_t budget) {
  sdk::Model model;
  model.budget = budget;
  model.modules.emplace_back();
  for (uint32_t i = 0; i < bytes.size(); ++i) {
    sdk::Parameter parameter;
    parameter.elements = bytes[i] / 4;
    parameter.bytes = bytes[i];
    model.parameters.push_back(parameter);
    model.modules.push_back({.own = {i}, .external = {}, .children = {}, .leaf = false});
    model.modules.front().children.push_back(i + 1);
  }
  return model;
}

/// What one pass had gathered.
struct Gathered {
  uint64_t bytes = 0;
  uint64_t groups = 0;
  uint64_t late = 0;  ///< groups that were not gathered ahead of their visit
};

/// Places that overlap are found by the rules, too. Throws std::runtime_error for what breaks one.
class Trainer {
 public:
  Trainer(sdk::Model model, PlannerOptions options = {})
      : rules_(model), planner_(std::move(model), options), room_(8 * rules_.model().parameters.size() + 64) {}

  void begin_pass(bool with_gradient = true) {
    now_ = {};
    const auto actions = answer([&](sdk::Actions& to) { planner_.begin_pass(with_gradient, to); });
    held(rules_.begin_pass(with_gradient, actions));
  }
  void enter(uint32_t module, bool backward = false, bool recompute = false) {
    const sdk::Visit visit{module, backward, recompute, {}};
    const auto actions = answer([&](sdk::Actions& to) { planner_.enter(visit, to); });
    held(rules_.enter(visit, actions));
  }
  void leave(uint32_t module, bool backward = false, bool recompute = false) {
    const sdk::Visit visit{module, backward, recompute, {}};
    const auto actions = answer([&](sdk::Actions& to) { planner_.leave(visit, to); });
    held(rules_.leave(visit, actions));
  }
  Gathered end_pass() {
    planner_.end_pass();
    held(rules_.end_pass({}));
    return now_;
  }
  void end_step() {
    const auto actions = answer([&](sdk::Actions& to) { planner_.end_step(to); });
    held(rules_.end_step(actions));
  }
  /// Forward through the layers in this order, and backward the other way round.
  Gathered pass(const std::vector<uint32_t>& layers, bool with_backward = true) {
    begin_pass(with_backward);
    for (const bool backward : {false, true}) {
      if (backward && !with_backward) continue;
      enter(0, backward);
      for (size_t i = 0; i < layers.size(); ++i) {
        const uint32_t layer = layers[backward ? layers.size() - 1 - i : i];
        enter(layer, backward);
        leave(layer, backward);
      }
      leave(0, backward);
    }
    return end_pass();
  }

  [[nodiscard]] Planner& planner() { return planner_; }
  [[nodiscard]] uint64_t most_whole() const { return most_whole_; }
  /// All answers so far, as numbers.
  [[nodiscard]] const std::vector<uint64_t>& said() const { return said_; }
  void forget() { said_.clear(); }

 private:
  template <class Ask>
  std::span<const pliant_action> answer(const Ask& ask) {
    pliant_action_list list{sizeof(pliant_action_list), 0, room_.size(), 0, room_.data()};
    {
      sdk::Actions actions(list);
      ask(actions);
    }
    const std::span<const pliant_action> all(room_.data(), list.count);
    std::map<uint32_t, bool> groups;
    for (const pliant_action& one : all) {
      said_.insert(said_.end(), {one.kind, one.parameter, one.flags, one.place});
      if (one.kind != PLIANT_ACTION_GATHER) continue;
      now_.bytes += rules_.model().parameters[one.parameter].bytes;
      groups[one.group] = (one.flags & PLIANT_ACTION_PREFETCH) != 0;
    }
    for (const auto& [group, ahead] : groups) {
      ++now_.groups;
      now_.late += ahead ? 0 : 1;
    }
    return all;
  }
  void held(const sdk::CoordinatorRules::Wrong& wrong) {
    if (wrong) throw std::runtime_error(*wrong);
    most_whole_ = std::max(most_whole_, rules_.whole_bytes());
  }

  sdk::CoordinatorRules rules_;
  Planner planner_;
  std::vector<pliant_action> room_;
  std::vector<uint64_t> said_;
  Gathered now_;
  uint64_t most_whole_ = 0;
};

}  // namespace pliant::coordinator::planned::test
