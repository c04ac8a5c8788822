// What is known of each parameter: whether it is whole, which gather brings it, which entered modules use it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "pliant/sdk/coordinator.hpp"

namespace pliant::coordinator::zero3 {

/// The step that a parameter was last fetched for, where it was not in this pass.
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

struct ParameterState {
  enum Status : uint8_t { kPartitioned, kOnItsWay, kAvailable };
  static constexpr uint32_t kNobody = UINT32_MAX;

  int64_t fetched_for = kNever;
  uint64_t elements = 0;
  uint32_t gather = 0;      ///< the number of its collective, while registered
  uint32_t user = kNobody;  ///< an entered module that uses it
  uint32_t stamp = 0;       ///< for sets of one call
  Status status = kPartitioned;
  bool registered = false;  ///< it is in the list of those on their way, from its gather to its own wait
  bool shared_now = false;  ///< more entered modules use it, too
  bool persistent : 1 = false;
  bool external : 1 = false;
  bool frozen : 1 = false;
};
static_assert(sizeof(ParameterState) == 32);

class Parameters {
 public:
  Parameters() = default;
  explicit Parameters(const std::vector<sdk::Parameter>& given) : more_users_(given.size()) {
    for (const sdk::Parameter& one : given) {
      ParameterState& state = states_.emplace_back();
      state.elements = one.elements;
      state.persistent = one.persistent;
      state.external = one.external;
      state.frozen = one.frozen;
    }
  }

  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(states_.size()); }
  ParameterState& operator[](uint32_t parameter) { return states_[parameter]; }
  const ParameterState& operator[](uint32_t parameter) const { return states_[parameter]; }
  std::vector<ParameterState>& all() { return states_; }
  ParameterState* data() { return states_.data(); }

  // Collectives. The first wait for one of a collective makes all of it available, waited for or not.
  [[nodiscard]] uint32_t new_gather() {
    if (registered_ == 0) arrived_.clear();
    arrived_.push_back(0);
    return static_cast<uint32_t>(arrived_.size() - 1);
  }
  void enter_register(ParameterState& state, uint32_t gather) {
    state.registered = true;
    state.gather = gather;
    ++registered_;
  }
  void leave_register(ParameterState& state) {
    arrive(state, arrived_.data());
    count_arrived(1);
  }
  // For loops: leave_register() in two parts, for each parameter and for all. enter_register() likewise.
  [[nodiscard]] uint32_t* arrived() { return arrived_.data(); }
  static void arrive(ParameterState& state, uint32_t* arrived) {
    arrived[state.gather] = 1;
    if (state.status == ParameterState::kOnItsWay) state.status = ParameterState::kAvailable;
    state.registered = false;
  }
  void count_arrived(uint64_t count) { registered_ -= count; }
  void count_registered(uint64_t count) { registered_ += count; }
  [[nodiscard]] uint64_t registered() const { return registered_; }
  [[nodiscard]] bool available(const ParameterState& state) const {
    return state.status == ParameterState::kAvailable ||
           (state.status == ParameterState::kOnItsWay && arrived_[state.gather] != 0);
  }

  // Entered modules that use a parameter: a set, so a module that is entered twice counts once.
  void add_user(uint32_t parameter, uint32_t module) {
    ParameterState& state = states_[parameter];
    if (state.user == ParameterState::kNobody) {
      state.user = module;
    } else if (state.user != module) {
      add_more(state, parameter, module);
    }
  }
  void remove_user(uint32_t parameter, uint32_t module) {
    ParameterState& state = states_[parameter];
    if (state.shared_now) {
      remove_more(state, parameter, module);
    } else if (state.user == module) {
      state.user = ParameterState::kNobody;
    }
  }
  void remove_users(uint32_t parameter) {
    states_[parameter].user = ParameterState::kNobody;
    states_[parameter].shared_now = false;
    more_users_[parameter].clear();
  }

  /// True when both are in the same state between two calls: stamps and numbers of collectives that have arrived do not
  /// count. Of both nothing is on its way, else false.
  [[nodiscard]] bool same_state(const Parameters& other) const {
    const auto same = [](const ParameterState& a, const ParameterState& b) {
      return a.status == b.status && a.user == b.user && a.fetched_for == b.fetched_for && a.shared_now == b.shared_now;
    };
    return registered_ == 0 && other.registered_ == 0 && more_users_ == other.more_users_ &&
           std::equal(states_.begin(), states_.end(), other.states_.begin(), other.states_.end(), same);
  }

  /// A stamp that no state has.
  [[nodiscard]] uint32_t new_stamp() {
    if (++stamp_ == 0) {
      for (ParameterState& state : states_) state.stamp = 0;
      stamp_ = 1;
    }
    return stamp_;
  }

 private:
  void add_more(ParameterState& state, uint32_t parameter, uint32_t module) {
    std::vector<uint32_t>& more = more_users_[parameter];
    if (std::find(more.begin(), more.end(), module) == more.end()) more.push_back(module);
    state.shared_now = true;
  }
  void remove_more(ParameterState& state, uint32_t parameter, uint32_t module) {
    std::vector<uint32_t>& more = more_users_[parameter];
    if (state.user == module) {
      state.user = more.back();
      more.pop_back();
    } else {
      more.erase(std::remove(more.begin(), more.end(), module), more.end());
    }
    state.shared_now = !more.empty();
  }

  std::vector<ParameterState> states_;
  std::vector<std::vector<uint32_t>> more_users_;
  std::vector<uint32_t> arrived_;  ///< by number of the collective: 1 = one of it was waited for
  uint64_t registered_ = 0;
  uint32_t stamp_ = 0;
};

}  // namespace pliant::coordinator::zero3
