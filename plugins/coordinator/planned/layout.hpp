// What the modules of a model use, as flat lists.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "pliant/sdk/coordinator.hpp"

namespace pliant::coordinator::planned {

namespace sdk = pliant::sdk;

/// For products of two of 64 bits.
__extension__ typedef unsigned __int128 Wide;

/// Places in an arena are multiples of this.
constexpr uint64_t kAlignment = 256;

class Layout {
 public:
  Layout() = default;
  explicit Layout(sdk::Model model) : model_(std::move(model)) { build(); }

  /// O(model).
  void set_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external) {
    model_.modules[module].own.assign(own.begin(), own.end());
    model_.modules[module].external.assign(external.begin(), external.end());
    build();
  }

  [[nodiscard]] const sdk::Model& model() const { return model_; }
  [[nodiscard]] size_t parameters() const { return model_.parameters.size(); }
  /// What must be whole while the module is entered, ascending.
  [[nodiscard]] std::span<const uint32_t> used(uint32_t module) const {
    return std::span(used_).subspan(begin_[module], begin_[module + 1] - begin_[module]);
  }
  /// In the arena.
  [[nodiscard]] uint64_t bytes(uint32_t parameter) const { return bytes_[parameter]; }
  /// Other modules may be entered while this one is.
  [[nodiscard]] bool has_inner(uint32_t module) const {
    return !model_.modules[module].leaf && !model_.modules[module].children.empty();
  }
  [[nodiscard]] const sdk::Parameter& parameter(uint32_t number) const { return model_.parameters[number]; }
  /// That gradients of the module take while it is entered backward.
  [[nodiscard]] uint64_t gradient_bytes(uint32_t module) const { return gradient_bytes_[module]; }
  /// The most that those of one module take.
  [[nodiscard]] uint64_t most_gradient_bytes() const {
    return gradient_bytes_.empty() ? 0 : *std::max_element(gradient_bytes_.begin(), gradient_bytes_.end());
  }
  /// Bytes of the budget that are left beside the largest module and the largest gradient; 0 without a budget.
  [[nodiscard]] uint64_t spare_bytes() const {
    uint64_t most = 0;
    for (uint32_t module = 0; module < model_.modules.size(); ++module) {
      uint64_t own = 0;
      for (const uint32_t parameter : used(module)) own += bytes_[parameter];
      most = std::max(most, own);
    }
    const uint64_t needed = most + most_gradient_bytes();
    return model_.budget - std::min(model_.budget, needed);
  }

 private:
  void build() {
    used_.clear();
    begin_.assign(1, 0);
    for (uint32_t module = 0; module < model_.modules.size(); ++module) {
      const std::vector<uint32_t> numbers = model_.used_by(module);
      used_.insert(used_.end(), numbers.begin(), numbers.end());
      begin_.push_back(used_.size());
    }
    bytes_.clear();
    for (const sdk::Parameter& one : model_.parameters) {
      bytes_.push_back((one.bytes + kAlignment - 1) / kAlignment * kAlignment);
    }
    gradient_bytes_.assign(model_.modules.size(), 0);
    for (uint32_t module = 0; module < model_.modules.size(); ++module) {
      for (const uint32_t parameter : used(module)) {
        gradient_bytes_[module] += model_.parameters[parameter].gradient_bytes;
      }
    }
  }

  sdk::Model model_;
  std::vector<uint32_t> used_;
  std::vector<size_t> begin_;  ///< by module, and the end
  std::vector<uint64_t> bytes_;
  std::vector<uint64_t> gradient_bytes_;  ///< by module
};

}  // namespace pliant::coordinator::planned
