#include "sharded/coordinator.hpp"

#include <fmt/format.h>

#include "base/result.hpp"
#include "config/instances.hpp"
#include "pliant/abi/accelerator.h"
#include "pliant/error.hpp"
#include "pliant/sdk/calls.hpp"
#include "sharded/memory/whole_memory.hpp"
#include "sharded/shards/exchange.hpp"

namespace pliant::sharded {
namespace {

uint32_t flags_of(const ParameterRow& row) {
  return (row.frozen ? uint32_t{PLIANT_PARAMETER_FROZEN} : 0) |
         (row.persistent ? uint32_t{PLIANT_PARAMETER_PERSISTENT} : 0) |
         (row.external ? uint32_t{PLIANT_PARAMETER_EXTERNAL} : 0);
}

sdk::Visit visit_of(uint32_t module, Direction direction) {
  sdk::Visit visit;
  visit.module = module;
  visit.backward = direction == Direction::kBackward;
  visit.recompute = direction == Direction::kRecompute;
  return visit;
}

}  // namespace

Coordinator::Coordinator(const Config& config)
    : config_(config),
      instance_(or_throw(config::instantiate(config, "coordinator"))),
      name_(config.use("coordinator")),
      slots_(&instance_.table<pliant_coordinator>()),
      counters_(or_throw(instance_.extension<pliant_coordinator_counters>(PLIANT_COORDINATOR_COUNTERS))) {
  list_.struct_size = sizeof(list_);
}

void Coordinator::set_model(const ModelTables& model, uint64_t budget, DType whole, int32_t world_size,
                            std::span<const GradientRoom> gradients) {
  const uint32_t dtype = whole == DType::kF32 ? PLIANT_F32 : PLIANT_BF16;
  std::vector<pliant_parameter_row> parameters;
  for (const ParameterRow& row : model.parameters()) {
    const uint64_t bytes = WholeMemory::taken_by(row.elements * bytes_of(whole));
    const GradientRoom room = gradients.empty() ? GradientRoom{} : gradients[parameters.size()];
    parameters.push_back({row.elements, bytes, flags_of(row), dtype, room.gradient, room.received, row.name.c_str()});
  }
  std::vector<pliant_module_row> modules;
  for (const ModuleRow& row : model.modules()) {
    modules.push_back({row.leaf ? uint32_t{PLIANT_MODULE_LEAF} : 0, static_cast<uint32_t>(row.own.size()),
                       static_cast<uint32_t>(row.external.size()), static_cast<uint32_t>(row.children.size()),
                       row.own.data(), row.external.data(), row.children.data(), row.name.c_str()});
  }
  pliant_model given{};
  given.struct_size = sizeof(given);
  given.parameter_count = parameters.size();
  given.parameter_stride = sizeof(pliant_parameter_row);
  given.parameters = parameters.data();
  given.module_count = modules.size();
  given.module_stride = sizeof(pliant_module_row);
  given.modules = modules.data();
  given.budget = budget;
  given.world_size = world_size;
  given.reduce_flags = PLIANT_ACTION_LINGER;
  room_.resize(8 * parameters.size() + 64);
  pliant_error error;
  const int32_t status = sdk::call("set_model", instance_.self(), error, slots_->set_model, &given);
  if (status != PLIANT_OK) throw refused_model(status, error);
  rules_.emplace(given);
}

// That a tier is wanted is the config's doing.
Error Coordinator::refused_model(int32_t status, const pliant_error& error) const {
  Error made = plugin::to_error(instance_.plugin(), status, error);
  if (made.status() == Status::kUnimplemented) made = made.with_origin(Origin::kInput);
  return config::at_option(config_, "coordinator", made);
}

void Coordinator::set_module_parameters(uint32_t module, const ModuleRow& row) {
  pliant_error error;
  const int32_t status = sdk::call("set_module_parameters", instance_.self(), error, slots_->set_module_parameters,
                                   module, row.own.data(), row.own.size(), row.external.data(), row.external.size());
  if (status != PLIANT_OK) throw plugin::to_error(instance_.plugin(), status, error);
  rules_->set_module_parameters(module, row.own, row.external);
}

void Coordinator::set_costs(const std::vector<uint64_t>& nanoseconds) {
  pliant_error error;
  const int32_t status =
      sdk::call("set_costs", instance_.self(), error, slots_->set_costs, nanoseconds.data(), nanoseconds.size());
  if (status != PLIANT_OK) throw plugin::to_error(instance_.plugin(), status, error);
}

std::optional<std::span<const pliant_action>> Coordinator::drop_trace() {
  if (slots_->drop_trace == nullptr) return std::nullopt;
  pliant_error error;
  const auto actions = answered(sdk::call("drop_trace", instance_.self(), error, slots_->drop_trace, &blank()), error);
  return kept(actions, rules_->drop_trace(actions));
}

pliant_action_list& Coordinator::blank() {
  list_.capacity = room_.size();
  list_.count = 0;
  list_.actions = room_.data();
  return list_;
}

std::span<const pliant_action> Coordinator::answered(int32_t status, const pliant_error& error) {
  if (status != PLIANT_OK) {
    const Error made = plugin::to_error(instance_.plugin(), status, error);
    throw made.status() == Status::kResourceExhausted && made.options() == "budget" ? made.with_origin(Origin::kInput)
                                                                                    : made;
  }
  if (list_.count <= room_.size()) return std::span<const pliant_action>(room_).first(list_.count);
  throw Error(Status::kInternal,
              fmt::format("coordinator '{}' claims to have written {} actions into room for {}", name_, list_.count,
                          room_.size()),
              Origin::kPlugin);
}

std::span<const pliant_action> Coordinator::kept(std::span<const pliant_action> actions,
                                                 const sdk::CoordinatorRules::Wrong& wrong) const {
  if (!wrong) return actions;
  if (rules_->broken() == sdk::CoordinatorRule::kBudget) {
    throw Error(Status::kResourceExhausted,
                fmt::format("[coordinator] budget is too small for what coordinator '{1}' gathers here: {0}; raise it, "
                            "or choose a coordinator that keeps the budget",
                            *wrong, name_),
                Origin::kInput)
        .about("budget");
  }
  const bool needs_tier = rules_->broken() == sdk::CoordinatorRule::kTier;
  const bool may_mend = !needs_tier && config::is_off(config_, "coordinator", "strict");
  throw Error(needs_tier ? Status::kUnimplemented : Status::kInternal,
              fmt::format("coordinator '{}' broke a rule: {}{}", name_, *wrong,
                          may_mend ? fmt::format("; [coordinator.{}] strict = true may fix that", name_) : ""),
              Origin::kPlugin);
}

std::span<const pliant_action> Coordinator::begin_pass(bool with_gradient) {
  pliant_error error;
  const uint32_t flags = with_gradient ? 0 : uint32_t{PLIANT_PASS_NO_GRADIENT};
  const auto actions =
      answered(sdk::call("begin_pass", instance_.self(), error, slots_->begin_pass, flags, &blank()), error);
  return kept(actions, rules_->begin_pass(with_gradient, actions));
}

std::span<const pliant_action> Coordinator::asked(const char* name, VisitSlot slot, const sdk::Visit& visit) {
  pliant_visit given{};
  given.struct_size = sizeof(given);
  given.module = visit.module;
  given.direction = visit.backward ? PLIANT_BACKWARD : PLIANT_FORWARD;
  given.flags = visit.recompute ? uint32_t{PLIANT_VISIT_RECOMPUTE} : 0;
  given.complete = visit.complete.data();
  given.complete_count = visit.complete.size();
  pliant_error error;
  return answered(sdk::call(name, instance_.self(), error, slot, &given, &blank()), error);
}

std::span<const pliant_action> Coordinator::enter(uint32_t module, Direction direction) {
  const sdk::Visit visit = visit_of(module, direction);
  const auto actions = asked("enter", slots_->enter, visit);
  return kept(actions, rules_->enter(visit, actions));
}

std::span<const pliant_action> Coordinator::leave(uint32_t module, Direction direction,
                                                  std::span<const uint32_t> complete) {
  sdk::Visit visit = visit_of(module, direction);
  visit.complete = complete;
  const auto actions = asked("leave", slots_->leave, visit);
  return kept(actions, rules_->leave(visit, actions));
}

std::span<const pliant_action> Coordinator::end_pass() {
  pliant_error error;
  const auto actions = answered(sdk::call("end_pass", instance_.self(), error, slots_->end_pass, &blank()), error);
  return kept(actions, rules_->end_pass(actions));
}

std::span<const pliant_action> Coordinator::end_step() {
  pliant_error error;
  const auto actions = answered(sdk::call("end_step", instance_.self(), error, slots_->end_step, &blank()), error);
  return kept(actions, rules_->end_step(actions));
}

std::optional<uint64_t> Coordinator::lost_to_gaps() const {
  const uint64_t lost = counts().lost_to_gaps;
  return lost == UINT64_MAX ? std::nullopt : std::optional(lost);
}

pliant_coordinator_counts Coordinator::counts() const {
  constexpr pliant_coordinator_counts kNothing{sizeof(kNothing), PLIANT_TRACE_NONE, 0, 0, UINT64_MAX, UINT64_MAX};
  if (counters_ == nullptr) return kNothing;
  pliant_coordinator_counts counts = kNothing;
  pliant_error error;
  return sdk::call("read", instance_.self(), error, counters_->read, &counts) == PLIANT_OK ? counts : kNothing;
}

void Coordinator::give_up() noexcept {
  pliant_error error;
  static_cast<void>(sdk::call("end_step", instance_.self(), error, slots_->end_step, &blank()));
  if (rules_) rules_->reset();
}

}  // namespace pliant::sharded
