#include "sharded/coordinator.hpp"

#include <fmt/format.h>

#include "base/result.hpp"
#include "config/instances.hpp"
#include "pliant/abi/accelerator.h"
#include "pliant/error.hpp"

namespace pliant::sharded {
namespace {

uint32_t flags_of(const ParameterRow& row) {
  return (row.frozen ? uint32_t{PLIANT_PARAMETER_FROZEN} : 0) |
         (row.persistent ? uint32_t{PLIANT_PARAMETER_PERSISTENT} : 0) |
         (row.external ? uint32_t{PLIANT_PARAMETER_EXTERNAL} : 0);
}

}  // namespace

Coordinator::Coordinator(const Config& config)
    : instance_(or_throw(config::instantiate(config, "coordinator"))),
      name_(config.use("coordinator")),
      slots_(&instance_.table<pliant_coordinator>()) {
  list_.struct_size = sizeof(list_);
}

void Coordinator::set_model(const ModelTables& model, uint64_t budget, uint64_t bytes_per_element, int32_t world_size) {
  std::vector<pliant_parameter_row> parameters;
  for (const ParameterRow& row : model.parameters()) {
    parameters.push_back({row.elements, row.elements * bytes_per_element, flags_of(row), PLIANT_F32});
  }
  std::vector<pliant_module_row> modules;
  for (const ModuleRow& row : model.modules()) {
    modules.push_back({row.leaf ? uint32_t{PLIANT_MODULE_LEAF} : 0, static_cast<uint32_t>(row.own.size()),
                       static_cast<uint32_t>(row.external.size()), static_cast<uint32_t>(row.children.size()),
                       row.own.data(), row.external.data(), row.children.data()});
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
  room_.resize(8 * parameters.size() + 64);
  pliant_error error = plugin::fresh_error();
  const int32_t status = slots_->set_model(instance_.self(), &given, &error);
  if (status != PLIANT_OK) throw plugin::to_error(instance_.plugin(), status, error);
}

void Coordinator::set_module_parameters(uint32_t module, const ModuleRow& row) {
  pliant_error error = plugin::fresh_error();
  const int32_t status =
      slots_->set_module_parameters(instance_.self(), module, row.own.data(), static_cast<uint32_t>(row.own.size()),
                                    row.external.data(), static_cast<uint32_t>(row.external.size()), &error);
  if (status != PLIANT_OK) throw plugin::to_error(instance_.plugin(), status, error);
}

std::optional<std::span<const pliant_action>> Coordinator::drop_trace() {
  if (slots_->drop_trace == nullptr) return std::nullopt;
  pliant_error error = plugin::fresh_error();
  return answered(slots_->drop_trace(instance_.self(), &blank(), &error), error);
}

pliant_action_list& Coordinator::blank() {
  list_.capacity = room_.size();
  list_.count = 0;
  list_.actions = room_.data();
  return list_;
}

std::span<const pliant_action> Coordinator::answered(int32_t status, const pliant_error& error) {
  if (status != PLIANT_OK) throw plugin::to_error(instance_.plugin(), status, error);
  if (list_.count <= room_.size()) return std::span<const pliant_action>(room_).first(list_.count);
  throw Error(
      Status::kInternal,
      fmt::format("coordinator '{}' says that it wrote {} actions into room for {}", name_, list_.count, room_.size()),
      ExitCode::kPlugin);
}

std::span<const pliant_action> Coordinator::begin_pass(bool with_gradient) {
  pliant_error error = plugin::fresh_error();
  const uint32_t flags = with_gradient ? 0 : uint32_t{PLIANT_PASS_NO_GRADIENT};
  return answered(slots_->begin_pass(instance_.self(), flags, &blank(), &error), error);
}

std::span<const pliant_action> Coordinator::visit(VisitSlot slot, uint32_t module, Direction direction,
                                                  std::span<const uint32_t> complete) {
  pliant_visit visit{};
  visit.struct_size = sizeof(visit);
  visit.module = module;
  visit.direction = direction == Direction::kBackward ? PLIANT_BACKWARD : PLIANT_FORWARD;
  visit.flags = direction == Direction::kRecompute ? uint32_t{PLIANT_VISIT_RECOMPUTE} : 0;
  visit.complete = complete.data();
  visit.complete_count = complete.size();
  pliant_error error = plugin::fresh_error();
  return answered(slot(instance_.self(), &visit, &blank(), &error), error);
}

std::span<const pliant_action> Coordinator::enter(uint32_t module, Direction direction) {
  return visit(slots_->enter, module, direction, {});
}

std::span<const pliant_action> Coordinator::leave(uint32_t module, Direction direction,
                                                  std::span<const uint32_t> complete) {
  return visit(slots_->leave, module, direction, complete);
}

std::span<const pliant_action> Coordinator::end_pass() {
  pliant_error error = plugin::fresh_error();
  return answered(slots_->end_pass(instance_.self(), &blank(), &error), error);
}

std::span<const pliant_action> Coordinator::end_step() {
  pliant_error error = plugin::fresh_error();
  return answered(slots_->end_step(instance_.self(), &blank(), &error), error);
}

}  // namespace pliant::sharded
