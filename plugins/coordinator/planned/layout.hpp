// What the modules of a model use, as flat lists, and what they need of the arena.
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

  /// O(1). build() comes before anything else is asked.
  void set_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external) {
    model_.modules[module].own.assign(own.begin(), own.end());
    model_.modules[module].external.assign(external.begin(), external.end());
  }
  /// O(model).
  void build();

  [[nodiscard]] const sdk::Model& model() const { return model_; }
  [[nodiscard]] size_t parameters() const { return model_.parameters.size(); }
  /// What must be whole while the module is entered, ascending.
  [[nodiscard]] std::span<const uint32_t> used(uint32_t module) const {
    return std::span(used_).subspan(begin_[module], begin_[module + 1] - begin_[module]);
  }
  /// In the arena.
  [[nodiscard]] uint64_t bytes(uint32_t parameter) const { return bytes_[parameter]; }
  /// Of all parameters.
  [[nodiscard]] uint64_t all_bytes() const { return all_bytes_; }
  /// Other modules may be entered while this one is.
  [[nodiscard]] bool has_inner(uint32_t module) const {
    return !model_.modules[module].leaf && !model_.modules[module].children.empty();
  }
  [[nodiscard]] uint64_t largest() const { return largest_; }
  /// What gradients, and what arrives for them, can take at most, whatever is visited.
  [[nodiscard]] uint64_t all_gradient_bytes() const { return all_gradients_; }
  /// The most that modules which are entered inside this one use at once.
  [[nodiscard]] uint64_t most_below(uint32_t module) const { return most_below_[module]; }
  /// Modules that use something are entered inside a module that uses it.
  [[nodiscard]] bool is_around(uint32_t parameter) const { return is_around_[parameter]; }
  /// Some module that has_inner() uses parameters with bytes.
  [[nodiscard]] bool has_containers() const { return has_containers_; }
  /// Parameters that modules use unannounced, ascending.
  [[nodiscard]] const std::vector<uint32_t>& external() const { return external_; }
  [[nodiscard]] const sdk::Parameter& parameter(uint32_t number) const { return model_.parameters[number]; }
  /// Of a complete gradient that waits for others, as the bucket counts it.
  [[nodiscard]] uint64_t waiting_bytes(uint32_t number) const {
    const sdk::Parameter& one = parameter(number);
    return one.gradient_bytes > 0 ? one.gradient_bytes : one.elements * sizeof(float);
  }
  /// The most that gradients take while a module and those around it are entered backward, with what arrives for those
  /// of the module, where no gradient lives longer.
  [[nodiscard]] uint64_t most_gradient_bytes() const { return most_gradients_; }
  /// The most that one module uses.
  [[nodiscard]] uint64_t most_of_module() const { return most_of_module_; }
  /// The most that a module and those around it use.
  [[nodiscard]] uint64_t most_used_bytes() const { return most_used_; }
  /// Bytes of the budget that are left beside both.
  [[nodiscard]] uint64_t spare_bytes() const {
    return model_.budget - std::min(model_.budget, most_used_ + most_gradients_);
  }

 private:
  sdk::Model model_;
  std::vector<uint32_t> used_;
  std::vector<size_t> begin_;  ///< by module, and the end
  std::vector<uint64_t> bytes_;
  std::vector<uint32_t> external_;
  std::vector<uint64_t> most_below_;  ///< by module
  std::vector<bool> is_around_;       ///< by parameter
  uint64_t all_bytes_ = 0;
  uint64_t largest_ = 0;
  uint64_t all_gradients_ = 0;
  uint64_t most_gradients_ = 0;
  uint64_t most_used_ = 0;
  uint64_t most_of_module_ = 0;
  bool has_containers_ = false;
};

}  // namespace pliant::coordinator::planned
