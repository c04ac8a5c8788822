#include "sharded/rehearsal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "config/instances.hpp"
#include "pliant/error.hpp"
#include "sharded/arena_needs.hpp"
#include "sharded/coordinator.hpp"
#include "sharded/exchange.hpp"

namespace pliant::sharded {
namespace {

constexpr int kRehearsedSteps = 3;

/// A program that computes nothing.
class Rehearsal {
 public:
  using Hear = std::function<void(const RehearsedCall&)>;
  Rehearsal(Coordinator& coordinator, const ModelTables& model, Hear hear = {})
      : coordinator_(coordinator), model_(model), hear_(std::move(hear)), uses_(model.parameters().size()) {}

  void step(int64_t passes = 1) {
    for (int64_t pass = 0; pass < passes; ++pass) {
      complete_.clear();  // what is left when a pass ends, the host reduces
      tell({Kind::kBeginPass, {}, false, coordinator_.begin_pass(true)});
      forward(0);
      backward(0);
      tell({Kind::kEndPass, {}, false, coordinator_.end_pass()});
    }
    tell({Kind::kEndStep, {}, false, coordinator_.end_step()});
  }

 private:
  using Kind = RehearsedCall::Kind;

  void tell(const RehearsedCall& call) const {
    if (hear_) hear_(call);
  }
  void forward(uint32_t number) {
    const ModuleRow& module = model_.modules()[number];
    tell({Kind::kEnter, number, false, coordinator_.enter(number, Direction::kForward)});
    for (const uint32_t parameter : module.used) ++uses_[parameter];
    if (!module.leaf) {
      for (const uint32_t child : module.children) forward(child);
    }
    tell({Kind::kLeave, number, false, coordinator_.leave(number, Direction::kForward, {})});
  }

  void backward(uint32_t number) {
    const ModuleRow& module = model_.modules()[number];
    tell({Kind::kEnter, number, true, coordinator_.enter(number, Direction::kBackward)});
    if (!module.leaf) {
      for (auto child = module.children.rbegin(); child != module.children.rend(); ++child) backward(*child);
    }
    for (const uint32_t parameter : module.used) {
      const ParameterRow& row = model_.parameter(parameter);
      if (--uses_[parameter] == 0 && !row.frozen && !row.external) complete_.push_back(parameter);
    }
    std::sort(complete_.begin(), complete_.end());
    tell({Kind::kLeave, number, true, coordinator_.leave(number, Direction::kBackward, complete_)});
    std::erase_if(complete_, [this](uint32_t parameter) { return coordinator_.is_reduced(parameter); });
  }

  Coordinator& coordinator_;
  const ModelTables& model_;
  const Hear hear_;
  std::vector<uint32_t> uses_;      ///< by parameter: forward visits of the pass without their backward
  std::vector<uint32_t> complete_;  ///< and not reduced
};

ModelTables three_layers() {
  ModelTables model;
  model.add(ModuleSpec{.name = "model", .parent = std::nullopt, .own = {}, .external = {}});
  for (int layer = 0; layer < 3; ++layer) {
    ModuleSpec module{.name = fmt::format("layer.{}", layer), .parent = ModuleId{0}, .own = {}, .external = {}};
    for (const char* const name : {"weight", "bias"}) {
      ParameterSpec parameter;
      parameter.name = fmt::format("layer.{}.{}", layer, name);
      parameter.shape = {1024};
      parameter.initialise = [](std::span<float>) {};
      module.own.push_back(ParameterId{model.add(std::move(parameter))});
    }
    model.add(std::move(module));
  }
  model.close();
  return model;
}

}  // namespace

void rehearse(const Config& config, const ModelTables& model, uint64_t budget, DType whole, int32_t world_size) {
  Coordinator coordinator(config);
  try {
    coordinator.set_model(model, budget, whole, world_size);
    Rehearsal rehearsal(coordinator, model);
    for (int step = 0; step < kRehearsedSteps; ++step) rehearsal.step();
  } catch (const Error& error) {
    if (error.status() == Status::kUnimplemented) throw;
  }
}

void simulate(const Config& config, const ModelTables& model, int32_t world_size, const RehearsedSteps& steps,
              const std::function<void(int)>& begins, const std::function<void(const RehearsedCall&)>& hear) {
  const DType whole = dtype_of(config.coordinator().compute_dtype);
  const DType reduce = dtype_of(config.coordinator().reduce_dtype);
  const auto budget = static_cast<uint64_t>(config.coordinator().budget.value_or(0));
  require_budget(model, budget, whole, reduce);
  std::vector<GradientRoom> rooms;
  if (budget > 0) {
    rooms = gradient_room(model, most_owned_at(model, world_size), world_size, reduce, steps.micro_batches);
    if (steps.micro_batches > 1) require_budget(model, budget, whole, rooms, steps.micro_batches);
  }
  Coordinator coordinator(config);
  coordinator.set_model(model, budget, whole, world_size, rooms);
  Rehearsal rehearsal(coordinator, model, hear);
  for (int step = 0; step < steps.steps; ++step) {
    begins(step);
    rehearsal.step(steps.passes);
  }
}

void check_coordinator(const Config& config) {
  if (!config::is_open(config, "coordinator")) return;
  rehearse(config, three_layers(), 0, DType::kF32, static_cast<int32_t>(config.run().workers));
}

}  // namespace pliant::sharded
