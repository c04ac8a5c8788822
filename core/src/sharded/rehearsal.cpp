#include "sharded/rehearsal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "config/instances.hpp"
#include "pliant/error.hpp"
#include "sharded/coordinator.hpp"
#include "sharded/memory/arena_needs.hpp"
#include "sharded/shards/exchange.hpp"

namespace pliant::sharded {
namespace {

constexpr int kRehearsedSteps = 3;

constexpr size_t kDirections = 3;

/// A program that computes nothing.
class Rehearsal {
 public:
  using Hear = std::function<void(const RehearsedCall&)>;
  Rehearsal(Coordinator& coordinator, const ModelTables& model, Hear hear = {})
      : coordinator_(coordinator),
        model_(model),
        hear_(std::move(hear)),
        uses_(model.parameters().size()),
        was_complete_(model.parameters().size()),
        entered_(model.modules().size()) {}

  /// In the order of the tree.
  void step(int64_t passes = 1, size_t micro_batches = 1) {
    for (int64_t pass = 0; pass < passes; ++pass) {
      begin_pass(true, micro_batches);
      forward(0);
      backward(0);
      end_pass();
    }
    end_step();
  }

  /// `micro_batches`: of a pass with gradients; nothing: as recorded.
  void play(const TracedStep& step, std::optional<size_t> micro_batches) {
    for (const std::span<const TracedCall>& run : step) {
      for (const TracedCall& call : run) play(call, micro_batches.value_or(call.micro_batches));
    }
  }

 private:
  using Kind = RehearsedCall::Kind;

  void tell(RehearsedCall call) const {
    call.with_gradient = with_gradient_;
    call.micro_batches = micro_batches_;
    if (hear_) hear_(call);
  }
  void begin_pass(bool with_gradient, size_t micro_batches) {
    in_pass_ = true;
    with_gradient_ = with_gradient;
    micro_batches_ = with_gradient ? micro_batches : 1;
    complete_.clear();  // what is left when a pass ends, the host reduces
    uses_.assign(uses_.size(), 0);
    was_complete_.assign(uses_.size(), false);
    tell({Kind::kBeginPass, {}, false, coordinator_.begin_pass(with_gradient)});
  }
  void enter(uint32_t module, Direction direction) {
    ++open_;
    ++entered_[module][static_cast<size_t>(direction)];
    tell({Kind::kEnter, module, direction == Direction::kBackward, coordinator_.enter(module, direction),
          direction == Direction::kRecompute});
    if (direction != Direction::kForward) return;
    for (const uint32_t parameter : model_.modules()[module].used) ++uses_[parameter];
  }
  void leave(uint32_t module, Direction direction) {
    --open_;
    --entered_[module][static_cast<size_t>(direction)];
    const bool is_backward = direction == Direction::kBackward;
    if (is_backward) find_complete(model_.modules()[module]);
    tell({Kind::kLeave, module, is_backward, coordinator_.leave(module, direction, complete_),
          direction == Direction::kRecompute});
    std::erase_if(complete_, [this](uint32_t parameter) { return coordinator_.is_reduced(parameter); });
  }
  void find_complete(const ModuleRow& module) {
    const auto before = static_cast<std::ptrdiff_t>(complete_.size());
    for (const uint32_t parameter : module.used) {
      const ParameterRow& row = model_.parameter(parameter);
      if (row.frozen || row.external || uses_[parameter] == 0) continue;
      if (--uses_[parameter] > 0 || was_complete_[parameter]) continue;
      was_complete_[parameter] = true;
      complete_.push_back(parameter);
    }
    std::inplace_merge(complete_.begin(), complete_.begin() + before, complete_.end());
  }
  void end_pass() {
    RehearsedCall ended{Kind::kEndPass, {}, false, coordinator_.end_pass()};
    ended.lost_to_gaps = coordinator_.lost_to_gaps();
    tell(ended);
    in_pass_ = false;
  }
  void end_step() { tell({Kind::kEndStep, {}, false, coordinator_.end_step()}); }

  void forward(uint32_t number) {
    const ModuleRow& module = model_.modules()[number];
    enter(number, Direction::kForward);
    if (!module.leaf) {
      for (const uint32_t child : module.children) forward(child);
    }
    leave(number, Direction::kForward);
  }
  void backward(uint32_t number) {
    const ModuleRow& module = model_.modules()[number];
    enter(number, Direction::kBackward);
    if (!module.leaf) {
      for (auto child = module.children.rbegin(); child != module.children.rend(); ++child) backward(*child);
    }
    leave(number, Direction::kBackward);
  }

  void play(const TracedCall& call, size_t micro_batches) {
    require_possible(call);
    switch (call.kind) {
      case TracedCall::Kind::kBeginPass:
      case TracedCall::Kind::kBeginEvaluation:
        return begin_pass(call.kind == TracedCall::Kind::kBeginPass, micro_batches);
      case TracedCall::Kind::kEnter:
        return enter(*call.module, call.direction);
      case TracedCall::Kind::kLeave:
        return leave(*call.module, call.direction);
      case TracedCall::Kind::kEndPass:
        return end_pass();
      case TracedCall::Kind::kEndStep:
        return end_step();
      case TracedCall::Kind::kByHand:
        return;
    }
  }

  void require_possible(const TracedCall& call) const {
    const bool is_visit = call.kind == TracedCall::Kind::kEnter || call.kind == TracedCall::Kind::kLeave;
    const bool has_module = call.module && *call.module < entered_.size();
    const char* why = nullptr;
    if (is_visit && !has_module) {
      why = "concerns a module that the model lacks";
    } else if (is_visit || call.kind == TracedCall::Kind::kEndPass) {
      if (!in_pass_) why = "is outside a pass";
    } else if (in_pass_) {
      why = "is inside a pass";
    }
    const bool is_backward = is_visit && call.direction == Direction::kBackward;
    if (why == nullptr && is_backward && !with_gradient_) why = "is backward in a pass without gradients";
    if (why == nullptr && call.kind == TracedCall::Kind::kLeave &&
        entered_[*call.module][static_cast<size_t>(call.direction)] == 0) {
      why = "leaves a module that was not entered";
    }
    if (why == nullptr && call.kind == TracedCall::Kind::kEndPass && open_ > 0)
      why = "occurs while modules are entered";
    if (why == nullptr) return;
    throw Error(Status::kDataLoss, fmt::format("the calls recorded for step {} are not those of a program: {}{}{} {}",
                                               call.step, word_of(call), has_module ? " " : "",
                                               has_module ? model_.modules()[*call.module].name : std::string(), why));
  }

  Coordinator& coordinator_;
  const ModelTables& model_;
  const Hear hear_;
  std::vector<uint32_t> uses_;                              ///< by parameter: forward visits without their backward
  std::vector<bool> was_complete_;                          ///< by parameter: in this pass
  std::vector<uint32_t> complete_;                          ///< and not reduced
  std::vector<std::array<uint32_t, kDirections>> entered_;  ///< by module: visits that are not left
  uint64_t open_ = 0;                                       ///< of all modules
  bool in_pass_ = false;
  bool with_gradient_ = false;
  size_t micro_batches_ = 1;
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

namespace {

/// A coordinator of its own, as in a group of `world_size` ranks that is new.
void give_model(Coordinator& coordinator, const Config& config, const ModelTables& model, int32_t world_size,
                size_t micro_batches) {
  const DType whole = dtype_of(config.coordinator().compute_dtype);
  const DType reduce = dtype_of(config.coordinator().reduce_dtype);
  const auto budget = static_cast<uint64_t>(config.coordinator().budget.value_or(0));
  require_budget(model, budget, whole, reduce);
  std::vector<GradientRoom> rooms;
  if (budget > 0) {
    rooms = gradient_room(model, most_owned_at(model, world_size), world_size, reduce, micro_batches);
    if (micro_batches > 1) require_budget(model, budget, whole, rooms, micro_batches);
  }
  coordinator.set_model(model, budget, whole, world_size, rooms);
}

/// As Runtime does, which measures the second step of a group.
void tell_costs(Coordinator& coordinator, int step, const GatherTimes& costs) {
  if (step == 1 && costs && coordinator.takes_costs()) coordinator.set_costs(costs());
}

}  // namespace

void simulate(const Config& config, const ModelTables& model, int32_t world_size, const RehearsedSteps& steps,
              const std::function<void(int)>& begins, const std::function<void(const RehearsedCall&)>& hear,
              const GatherTimes& costs) {
  Coordinator coordinator(config);
  give_model(coordinator, config, model, world_size, steps.micro_batches);
  Rehearsal rehearsal(coordinator, model, hear);
  for (int step = 0; step < steps.steps; ++step) {
    begins(step);
    rehearsal.step(steps.passes, steps.micro_batches);
    tell_costs(coordinator, step, costs);
  }
}

void simulate(const Config& config, const ModelTables& model, int32_t world_size, std::span<const TracedStep> steps,
              const std::function<void(int)>& begins, const std::function<void(const RehearsedCall&)>& hear,
              std::optional<size_t> micro_batches, const GatherTimes& costs) {
  size_t most = micro_batches.value_or(1);
  for (const TracedStep& step : steps) most = micro_batches ? most : std::max<size_t>(most, most_micro_batches(step));
  Coordinator coordinator(config);
  give_model(coordinator, config, model, world_size, most);
  Rehearsal rehearsal(coordinator, model, hear);
  for (size_t step = 0; step < steps.size(); ++step) {
    begins(static_cast<int>(step));
    rehearsal.play(steps[step], micro_batches);
    tell_costs(coordinator, static_cast<int>(step), costs);
  }
}

void check_coordinator(const Config& config) {
  if (!config::is_open(config, "coordinator")) return;
  rehearse(config, three_layers(), 0, DType::kF32, static_cast<int32_t>(config.run().workers));
}

}  // namespace pliant::sharded
