// Coordinator: the plugin of [coordinator] as core asks it: a model in, visits in, actions out, each answer held
// against the rules of pliant/abi/coordinator.h as a whole before anything of it is carried out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "pliant/abi/coordinator.h"
#include "pliant/config.hpp"
#include "pliant/error.hpp"
#include "pliant/sdk/coordinator_rules.hpp"
#include "plugin/plugin.hpp"
#include "sharded/memory/arena_needs.hpp"
#include "sharded/shards/model_tables.hpp"

namespace pliant::sharded {

/// Answers are valid until the next call. All throw what the plugin reports, naming it, and kInternal (kPlugin) for an
/// answer that breaks a rule, naming the visit and the parameter; kUnimplemented where that needs a tier, which there
/// is none of. One thread at a time.
class Coordinator {
 public:
  /// `config` was opened with the need "coordinator".
  explicit Coordinator(const Config& config);

  [[nodiscard]] const std::string& name() const { return name_; }
  /// `budget` in bytes, 0: none. `whole`: the type of whole parameters, kF32 or kBF16. `gradients`: by parameter;
  /// empty: not known. Nothing is whole afterwards. The model outlives this, or is given again. Throws kUnimplemented
  /// (kInput) for options that need a tier.
  void set_model(const ModelTables& model, uint64_t budget, DType whole, int32_t world_size,
                 std::span<const GradientRoom> gradients = {});
  void set_module_parameters(uint32_t module, const ModuleRow& row);
  [[nodiscard]] bool takes_costs() const { return slots_->set_costs != nullptr; }
  /// Where it takes them: the same numbers on every rank.
  void set_costs(const std::vector<uint64_t>& nanoseconds);
  /// Whether it keeps anything from one step to another that can be saved.
  [[nodiscard]] bool has_state() const { return instance_.plugin().record().save != nullptr; }
  /// Between two passes: what it has learnt of its model.
  [[nodiscard]] Result<std::string> save() const { return instance_.save(); }
  /// After set_model of the model that it was saved with, before the first pass. What it refuses changes nothing.
  Result<> load(std::string_view saved) { return instance_.load(saved); }
  /// What was learnt of the order is thrown away. nullopt: it cannot do that, and wants end_step and set_model.
  std::optional<std::span<const pliant_action>> drop_trace();

  std::span<const pliant_action> begin_pass(bool with_gradient);
  std::span<const pliant_action> enter(uint32_t module, Direction direction);
  /// `complete`: pliant_visit::complete.
  std::span<const pliant_action> leave(uint32_t module, Direction direction, std::span<const uint32_t> complete);
  std::span<const pliant_action> end_pass();
  std::span<const pliant_action> end_step();
  /// The pass was given up, and what was whole is not any more. It is told with end_step, whatever it answers.
  void give_up() noexcept;
  /// Gathered by what it answered, or on its way.
  [[nodiscard]] bool is_whole(uint32_t parameter) const { return rules_->is_whole(parameter); }
  /// In this pass, by what it answered.
  [[nodiscard]] bool is_reduced(uint32_t parameter) const { return rules_->is_reduced(parameter); }
  /// PLIANT_TRACE_...; PLIANT_TRACE_NONE, too, where it has no counters.
  [[nodiscard]] int32_t trace() const { return counts().trace; }
  /// Bytes, of the pass that ended last: pliant_coordinator_counts. nullopt: it does not say.
  [[nodiscard]] std::optional<uint64_t> lost_to_gaps() const;

 private:
  using VisitSlot = int32_t (*)(void*, const pliant_visit*, pliant_action_list*, pliant_error*);
  std::span<const pliant_action> asked(const char* name, VisitSlot slot, const sdk::Visit& visit);
  std::span<const pliant_action> answered(int32_t status, const pliant_error& error);
  std::span<const pliant_action> kept(std::span<const pliant_action> actions,
                                      const sdk::CoordinatorRules::Wrong& wrong) const;
  pliant_action_list& blank();
  /// Where it does not say, as if it had no trace and gave no places.
  [[nodiscard]] pliant_coordinator_counts counts() const;
  [[nodiscard]] Error refused_model(int32_t status, const pliant_error& error) const;

  const Config config_;
  plugin::Instance instance_;
  std::string name_;
  const pliant_coordinator* slots_;
  const pliant_coordinator_counters* counters_;  ///< NULL: it has none
  std::optional<sdk::CoordinatorRules> rules_;
  std::vector<pliant_action> room_;
  pliant_action_list list_{};
};

}  // namespace pliant::sharded
