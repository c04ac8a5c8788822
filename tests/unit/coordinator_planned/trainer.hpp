// A program that trains with a Planner, and a host that holds every answer against the rules of the kind.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "planner.hpp"
#include "pliant/sdk/coordinator_rules.hpp"

namespace pliant::coordinator::planned::test {

constexpr uint64_t kUnit = 256;    ///< places are multiples of it
constexpr uint64_t kLayer = 1024;  ///< bytes of a layer, where all have as many

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
    model.modules.push_back({.own = {i}, .external = {}, .children = {}, .leaf = false, .name = ""});
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

/// A gradient has no room in the arena.
struct NoRoom : std::runtime_error {
  NoRoom() : std::runtime_error("a gradient has no room") {}
};

/// The arena of a host: what is gathered lies where it was told, gradients in the first gap from the end. Throws
/// std::runtime_error for what has no room there, NoRoom for a gradient that has none.
class PaperArena {
 public:
  explicit PaperArena(uint64_t bytes) : bytes_(bytes) {}
  void take_at(uint64_t place, uint64_t bytes) {
    if (bytes == 0) return;
    const auto after = held_.lower_bound(place);
    const bool meets_after = after != held_.end() && after->first < place + bytes;
    const bool meets_before = after != held_.begin() && std::prev(after)->second > place;
    if (meets_after || meets_before || place + bytes > bytes_) throw std::runtime_error("something lies in a place");
    held_.emplace(place, place + bytes);
  }
  uint64_t take_from_end(uint64_t bytes) {
    uint64_t end = bytes_;
    for (auto one = held_.rbegin(); one != held_.rend(); ++one) {
      if (end - one->second >= bytes) break;
      end = one->first;
    }
    if (end < bytes) throw NoRoom();
    if (bytes > 0) held_.emplace(end - bytes, end);
    return end - bytes;
  }
  void give_back(uint64_t place, uint64_t bytes) {
    if (bytes > 0) held_.erase(place);
  }

 private:
  uint64_t bytes_;
  std::map<uint64_t, uint64_t> held_;
};

/// Throws std::runtime_error for what breaks a rule, NoRoom for gradients that have none.
class Trainer {
 public:
  Trainer(sdk::Model model, PlannerOptions options = {})
      : rules_(model),
        arena_(model.budget / 256 * 256),
        gradients_(model.parameters.size()),
        bucket_(options.bucket),
        planner_(std::move(model), options),
        room_(8 * rules_.model().parameters.size() + 64) {}

  void begin_pass(bool with_gradient = true) {
    now_ = {};
    with_gradient_ = with_gradient;
    std::fill(gradients_.begin(), gradients_.end(), Gradient{});
    complete_.clear();
    is_backward_ = false;
    const auto actions = answer([&](sdk::Actions& to) { planner_.begin_pass(with_gradient, to); });
    held(rules_.begin_pass(with_gradient, actions));
    carry_out(actions);
  }
  void enter(uint32_t module, bool backward = false, bool recompute = false) {
    clear_way();
    const sdk::Visit visit{module, backward, recompute, {}};
    const auto actions = answer([&](sdk::Actions& to) { planner_.enter(visit, to); });
    held(rules_.enter(visit, actions));
    hold_order(rules_.used_by(module), actions);
    carry_out(actions);
    for (uint32_t parameter = 0; backward && !is_backward_ && parameter < gradients_.size(); ++parameter) {
      if (rules_.model().parameters[parameter].external) take_gradient(parameter);
    }
    is_backward_ = is_backward_ || backward;
    for (const uint32_t parameter : rules_.used_by(module)) {
      if (with_gradient_ && !backward && !recompute) ++gradients_[parameter].uses;
      if (backward) take_gradient(parameter);
    }
  }
  void leave(uint32_t module, bool backward = false, bool recompute = false) {
    clear_way();
    for (const uint32_t parameter : rules_.used_by(module)) {
      Gradient& one = gradients_[parameter];
      const sdk::Parameter& row = rules_.model().parameters[parameter];
      if (!backward || row.frozen || row.external || one.uses == 0 || --one.uses > 0 || one.is_reduced) continue;
      one.is_reduced = true;
      complete_.push_back(parameter);
    }
    std::sort(complete_.begin(), complete_.end());
    const std::vector<uint32_t> complete = complete_;
    const sdk::Visit visit{module, backward, recompute, complete};
    const auto actions = answer([&](sdk::Actions& to) { planner_.leave(visit, to); });
    held(rules_.leave(visit, actions));
    hold_against_bucket(complete, actions);
    carry_out(actions);
  }
  Gathered end_pass() {
    clear_way();
    const auto actions = answer([&](sdk::Actions& to) { planner_.end_pass(to); });
    held(rules_.end_pass(actions));
    carry_out(actions);
    retire();
    for (uint32_t parameter = 0; parameter < gradients_.size(); ++parameter) {
      const sdk::Parameter& row = rules_.model().parameters[parameter];
      Gradient& one = gradients_[parameter];
      if (row.frozen || !with_gradient_ || !has_arena() || one.was_sent) continue;  // one after the other
      if (!one.is_there) one.place = arena_.take_from_end(row.gradient_bytes);
      one.is_there = true;
      reduce(parameter);
      clear_way();
    }
    return now_;
  }
  void end_step() {
    give_up();
    const auto actions = answer([&](sdk::Actions& to) { planner_.end_step(to); });
    held(rules_.end_step(actions));
    carry_out(actions);
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
  /// All answers so far, as numbers, so many of an action: kind, parameter, flags, place.
  static constexpr size_t kNumbersOfAction = 4;
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
  /// What is gathered ahead is under way before the visit waits for its own, unless those are moved.
  static void hold_order(std::span<const uint32_t> used, std::span<const pliant_action> actions) {
    bool has_waited = false;
    for (const pliant_action& one : actions) {
      const bool is_own = std::find(used.begin(), used.end(), one.parameter) != used.end();
      if (is_own && one.kind == PLIANT_ACTION_RELEASE) has_waited = false;  // it is moved
      has_waited = has_waited || (is_own && one.kind == PLIANT_ACTION_WAIT);
      if (has_waited && one.kind == PLIANT_ACTION_GATHER)
        throw std::runtime_error("a gather begins behind a wait of the visit");
    }
  }
  /// Complete gradients leave all at once, no later than they fill a bucket, and without a budget no sooner.
  void hold_against_bucket(std::span<const uint32_t> complete, std::span<const pliant_action> actions) const {
    uint64_t bytes = 0;
    for (const uint32_t parameter : complete) {
      const sdk::Parameter& row = rules_.model().parameters[parameter];
      bytes += row.gradient_bytes > 0 ? row.gradient_bytes : row.elements * sizeof(float);
    }
    const auto reduced = static_cast<size_t>(std::count_if(
        actions.begin(), actions.end(), [](const pliant_action& one) { return one.kind == PLIANT_ACTION_REDUCE; }));
    const bool leave = reduced > 0;
    if (leave && reduced != complete.size())
      throw std::runtime_error("some complete gradients leave without the others");
    if (!leave && !complete.empty() && bytes >= bucket_) throw std::runtime_error("a full bucket does not leave");
    if (leave && !has_arena() && bytes < bucket_) throw std::runtime_error("a bucket leaves before it is full");
  }
  void held(const sdk::CoordinatorRules::Wrong& wrong) {
    if (wrong) throw std::runtime_error(*wrong);
    most_whole_ = std::max(most_whole_, rules_.whole_bytes());
  }
  [[nodiscard]] bool has_arena() const { return rules_.model().budget > 0; }
  void carry_out(std::span<const pliant_action> actions) {
    const pliant_action* before = nullptr;
    for (const pliant_action& one : actions) {
      const bool goes_on = before != nullptr && before->kind == one.kind && before->group == one.group;
      before = &one;
      if (one.kind == PLIANT_ACTION_REDUCE && !goes_on) retire();
      if (one.kind == PLIANT_ACTION_REDUCE) reduce(one.parameter, (one.flags & PLIANT_ACTION_LINGER) != 0);
      if (!has_arena()) continue;
      const uint64_t bytes = (rules_.model().parameters[one.parameter].bytes + 255) / 256 * 256;
      if (one.kind == PLIANT_ACTION_GATHER) {
        arena_.take_at(one.place == PLIANT_ANY_PLACE ? 0 : one.place, bytes);
        places_[one.parameter] = one.place;
      }
      if (one.kind == PLIANT_ACTION_RELEASE) arena_.give_back(places_[one.parameter], bytes);
    }
  }
  void take_gradient(uint32_t parameter) {
    Gradient& one = gradients_[parameter];
    if (one.is_there || one.is_reduced) return;
    one.is_there = true;
    if (has_arena()) one.place = arena_.take_from_end(rules_.model().parameters[parameter].gradient_bytes);
  }
  void reduce(uint32_t parameter, bool lingers = false) {
    Gradient& one = gradients_[parameter];
    one.is_reduced = one.was_sent = true;
    std::erase(complete_, parameter);
    if (has_arena()) one.received = arena_.take_from_end(rules_.model().parameters[parameter].received_bytes);
    (lingers ? lingering_ : sent_).push_back(parameter);
  }
  void clear_way() { give_back(sent_); }
  void retire() { give_back(lingering_); }
  void give_back(std::vector<uint32_t>& sent) {
    for (const uint32_t parameter : sent) {
      Gradient& one = gradients_[parameter];
      const sdk::Parameter& row = rules_.model().parameters[parameter];
      if (has_arena() && one.is_there) arena_.give_back(one.place, row.gradient_bytes);
      if (has_arena()) arena_.give_back(one.received, row.received_bytes);
      one.is_there = false;
    }
    sent.clear();
  }
  /// Of a pass that does not go on.
  void give_up() {
    clear_way();
    retire();
    for (uint32_t parameter = 0; parameter < gradients_.size(); ++parameter) {
      Gradient& one = gradients_[parameter];
      if (has_arena() && one.is_there) arena_.give_back(one.place, rules_.model().parameters[parameter].gradient_bytes);
      one = {};
    }
  }

  struct Gradient {
    uint32_t uses = 0;
    bool is_there = false;
    bool is_reduced = false;  ///< complete
    bool was_sent = false;
    uint64_t place = 0;
    uint64_t received = 0;
  };
  sdk::CoordinatorRules rules_;
  PaperArena arena_;
  std::vector<Gradient> gradients_;
  uint64_t bucket_;  ///< PlannerOptions::bucket
  std::vector<uint32_t> complete_;
  std::vector<uint32_t> sent_;
  std::vector<uint32_t> lingering_;
  std::map<uint32_t, uint64_t> places_;
  bool with_gradient_ = true;
  bool is_backward_ = false;
  Planner planner_;
  std::vector<pliant_action> room_;
  std::vector<uint64_t> said_;
  Gathered now_;
  uint64_t most_whole_ = 0;
};

}  // namespace pliant::coordinator::planned::test
