// The model as the schedule reads it: which parameters a module uses, in which order, and which stay whole.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pliant/sdk/coordinator.hpp"

namespace pliant::coordinator::zero3 {

/// Elements of all parameters of a model stay below this, so that sums over a trace fit 64 bits.
inline constexpr uint64_t kMostElements = uint64_t{1} << 48;

/// DeepSpeed's rule for parameters that stay whole between their uses: in the order of the model, every parameter of at
/// most `parameter` elements, as long as all that were taken have at most `model` elements. -1 turns it off.
struct PersistenceRule {
  int64_t parameter = -1;
  int64_t model = -1;
};

/// In place of the only module that lists a parameter.
inline constexpr uint32_t kSeveral = UINT32_MAX;

/// Waits of earlier visits that may be unfinished when another one is enqueued.
inline constexpr uint64_t kUnfinishedWaits = 2;
/// The number of the first group of an answer.
inline constexpr uint32_t kFirstGroup = 1;

/// Some parameters of 64 neighbours: a bit each.
struct Slice {
  uint32_t word = 0;  ///< numbers from 64 * word on
  uint64_t bits = 0;
};

/// What a visit of a module gathers.
struct ModuleUse {
  std::vector<uint32_t> numbers;  ///< ascending, each once
  std::vector<Slice> slices;      ///< the same, ascending
  uint64_t elements = 0;
  uint64_t elements_of_last = 0;
  bool has_empty = false;  ///< one has no elements
  // Actions for all of them, as an answer has them.
  std::vector<pliant_action> gathers;  ///< ahead, as the first group
  std::vector<pliant_action> waits;    ///< each behind its bound
  std::vector<pliant_action> releases;
};

class Layout {
 public:
  Layout() = default;
  /// `whole_leaf`: a leaf uses the external parameters of the modules below it, too; DeepSpeed leaves them out.
  /// Throws Failure(PLIANT_INVALID_ARGUMENT) for a module with two parents and for too many elements.
  Layout(const sdk::Model& model, bool whole_leaf);

  /// The module has other parameters from now on.
  void set_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external);

  [[nodiscard]] size_t module_count() const { return modules_.size(); }
  [[nodiscard]] bool is_leaf(uint32_t module) const { return modules_[module].leaf; }
  [[nodiscard]] bool has_leaves() const { return has_leaves_; }
  [[nodiscard]] const ModuleUse& use(uint32_t module) const { return uses_[module]; }
  /// By module. They stay where they are until parameters change.
  [[nodiscard]] const ModuleUse* uses() const { return uses_.data(); }
  /// What a visit of the module gathers: ascending, each once.
  [[nodiscard]] const std::vector<uint32_t>& used(uint32_t module) const { return uses_[module].numbers; }
  /// By parameter: the only module whose visits gather it; kSeveral, also where there is none.
  [[nodiscard]] std::vector<uint32_t> listers() const;
  /// Own parameters, with `deep` those of all modules below it, then external ones, in the order of the tables. One
  /// that is own and external stands there twice.
  [[nodiscard]] std::vector<uint32_t> listed(uint32_t module, bool deep) const;
  /// Rises with every change of parameters.
  [[nodiscard]] uint32_t version() const { return version_; }

  /// The parameters that the rule takes.
  [[nodiscard]] std::vector<uint32_t> persistent(const PersistenceRule& rule,
                                                 const std::vector<sdk::Parameter>& parameters) const;

 private:
  /// Numbers of `module` and of all modules below it, parents first.
  [[nodiscard]] std::vector<uint32_t> subtree(uint32_t module) const;
  void find_used();
  [[nodiscard]] ModuleUse use_of(std::vector<uint32_t> numbers) const;

  std::vector<sdk::Module> modules_;
  std::vector<uint64_t> elements_;  ///< by parameter
  std::vector<ModuleUse> uses_;
  bool has_leaves_ = false;
  bool whole_leaf_ = false;
  uint32_t version_ = 0;
};

}  // namespace pliant::coordinator::zero3
