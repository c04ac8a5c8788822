// GradientBooks: what gradients take of the arena while a coordinator is driven through a training.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "pliant/sdk/coordinator.hpp"

namespace pliant::testkit {

/// As pliant_parameter_row::gradient_bytes and received_bytes say.
class GradientBooks {
 public:
  /// The model outlives this.
  explicit GradientBooks(const sdk::Model& model) : model_(model), states_(model.parameters.size()) {}

  /// Any call of the program: what was reduced in the call before, and does not linger, is gone.
  void called() { bytes_ -= std::exchange(sent_, 0); }
  /// A pass begins, or what was begun is given up.
  void cleared() {
    states_.assign(states_.size(), State{});
    is_backward_ = false;
    bytes_ = sent_ = lingering_ = 0;
  }
  /// A group is about to be reduced, or a pass to end.
  void reducing() { bytes_ -= std::exchange(lingering_, 0); }
  void entered_backward(uint32_t module) {
    for (uint32_t number = 0; number < states_.size() && !is_backward_; ++number) {
      if (model_.parameters[number].external) take(number);
    }
    is_backward_ = true;
    for (const uint32_t number : model_.used_by(module)) take(number);
  }
  void reduced(uint32_t number, bool lingers = false) {
    State& one = states_[number];
    const uint64_t gradient = one.is_there ? model_.parameters[number].gradient_bytes : 0;
    bytes_ += model_.parameters[number].received_bytes;
    (lingers ? lingering_ : sent_) += gradient + model_.parameters[number].received_bytes;
    one.is_there = false;
    one.is_reduced = true;
  }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  struct State {
    bool is_there = false;
    bool is_reduced = false;
  };
  void take(uint32_t number) {
    State& one = states_[number];
    if (one.is_there || one.is_reduced) return;
    one.is_there = true;
    bytes_ += model_.parameters[number].gradient_bytes;
  }

  const sdk::Model& model_;
  std::vector<State> states_;
  bool is_backward_ = false;
  uint64_t bytes_ = 0;
  uint64_t sent_ = 0;
  uint64_t lingering_ = 0;
};

}  // namespace pliant::testkit
