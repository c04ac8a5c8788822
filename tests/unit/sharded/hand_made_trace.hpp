// HandMadeTrace: a trace as a run might have written it, put together call by call.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sharded/trace/trace_file.hpp"

namespace pliant::sharded {

inline uint32_t add_weights(ModelTables& model, const std::string& name, int64_t elements, bool external = false) {
  ParameterSpec spec;
  spec.name = name;
  spec.shape = {elements};
  spec.external = external;
  spec.initialise = [](std::span<float>) {};
  return model.add(std::move(spec));
}

/// A root without parameters, module 0, over layers: parameter i has so many elements and is that of module i + 1.
inline ModelTables model_of_layers(const std::vector<int64_t>& elements) {
  ModelTables model;
  model.add(ModuleSpec{.name = "model", .parent = std::nullopt, .own = {}, .external = {}});
  for (size_t i = 0; i < elements.size(); ++i) {
    const std::string name = fmt::format("layers.{}", i);
    const ParameterId weights{add_weights(model, name + ".weight", elements[i])};
    model.add(ModuleSpec{.name = name, .parent = ModuleId{0}, .own = {weights}, .external = {}});
  }
  model.close();
  return model;
}

inline pliant_action gathers(uint32_t parameter, bool ahead = false) {
  return {PLIANT_ACTION_GATHER, parameter, 0, ahead ? uint32_t{PLIANT_ACTION_PREFETCH} : 0, PLIANT_ANY_PLACE};
}
inline pliant_action releases(uint32_t parameter) {
  return {PLIANT_ACTION_RELEASE, parameter, 0, 0, 0};
}

struct HandMadeTrace {
  using Kind = TracedCall::Kind;
  TraceFile trace;
  int64_t step = 0;
  double now = 0;  ///< microseconds

  explicit HandMadeTrace(const std::vector<int64_t>& elements, uint64_t budget = 0) {
    trace.run = "made-by-hand";
    trace.coordinator = "planned";
    trace.budget = budget;
    trace.host_visible = true;
    trace.model = model_of_layers(elements);
    trace.ranks.emplace_back();
  }

  [[nodiscard]] TracedRank& rank() { return trace.ranks.back(); }
  [[nodiscard]] const std::vector<TracedCall>& calls() const { return trace.ranks.back().calls; }

  /// Takes 1 microsecond, and 10 pass after it. Returns its place.
  size_t call(Kind kind, std::optional<uint32_t> module = {}, Direction direction = Direction::kForward,
              std::vector<pliant_action> actions = {}, uint64_t live_bytes = 0) {
    TracedCall made;
    made.kind = kind;
    made.module = module;
    made.direction = direction;
    made.step = step;
    made.began = now;
    made.ended = now + 1;
    made.actions = std::move(actions);
    made.live_bytes = live_bytes;
    now += 11;
    rank().calls.push_back(std::move(made));
    return rank().calls.size() - 1;
  }
  size_t enter(uint32_t module, Direction direction = Direction::kForward, std::vector<pliant_action> actions = {},
               uint64_t live_bytes = 0) {
    return call(Kind::kEnter, module, direction, std::move(actions), live_bytes);
  }
  size_t leave(uint32_t module, Direction direction = Direction::kForward, std::vector<pliant_action> actions = {},
               uint64_t live_bytes = 0) {
    return call(Kind::kLeave, module, direction, std::move(actions), live_bytes);
  }
  void visit(uint32_t module, Direction direction = Direction::kForward) {
    enter(module, direction);
    leave(module, direction);
  }
  /// Forward over the modules and backward over them the other way round.
  void pass(const std::vector<uint32_t>& modules, uint32_t micro_batches = 1) {
    rank().calls[call(Kind::kBeginPass)].micro_batches = micro_batches;
    for (const uint32_t module : modules) visit(module);
    for (size_t i = modules.size(); i-- > 0;) visit(modules[i], Direction::kBackward);
    call(Kind::kEndPass);
  }
  void evaluation(const std::vector<uint32_t>& modules) {
    call(Kind::kBeginEvaluation);
    for (const uint32_t module : modules) visit(module);
    call(Kind::kEndPass);
  }
  void end_step() {
    call(Kind::kEndStep);
    ++step;
  }

  /// A gather that `from`, a call, enqueued.
  void gather(size_t from, uint32_t parameter, double began, double ended, bool ahead = false) {
    TracedTransfer made;
    made.parameters = {parameter};
    made.bytes = trace.model->parameter(parameter).elements * sizeof(float);
    made.is_ahead = ahead;
    made.call = from;
    made.began = began;
    made.ended = ended;
    rank().transfers.push_back(made);
  }
  void reduce(size_t from, uint32_t parameter, double began, double ended) {
    gather(from, parameter, began, ended);
    rank().transfers.back().kind = TracedTransfer::Kind::kReduce;
  }
  void wait(size_t at, uint32_t parameter, double began, double ended,
            TracedTransfer::Kind of = TracedTransfer::Kind::kGather) {
    rank().waits.push_back({of, parameter, at, began, ended});
  }
};

}  // namespace pliant::sharded
