// Timed steps: a program of layers that computes for as long as it is told, on the virtual clock of `sim` by way of
// Runtime, and on paper by StepClock.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pliant/balancer.hpp"
#include "sharded/rehearsal.hpp"
#include "sharded/runtime.hpp"
#include "sharded/shards/exchange.hpp"
#include "sharded/step_clock.hpp"
#include "unit/accelerator/wrapper.hpp"

namespace pliant::sharded {

/// A root over layers; the elements of each parameter of each layer.
using LayerShapes = std::vector<std::vector<int64_t>>;

struct TimedJob {
  LayerShapes layers;
  std::string coordinator = "eager";
  std::string options;  ///< lines of [coordinator], and sections after it
  int32_t ranks = 2;
  bool deterministic = false;
  bool looks_at_gradients = false;
  int64_t passes = 1;  ///< or micro-batches
  size_t at_once = 1;  ///< of these, in one pass
  int steps = 5;
  int64_t forward_ns = 40000;  ///< of a layer; twice that backward
  // Of the device; whole microseconds and GB/s.
  int64_t launch_us = 2;
  int64_t memory_gbps = 100;
  int64_t collective_us = 10;
  int64_t collective_gbps = 1;
};

inline Config config_of(const TimedJob& job) {
  ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  return Config::parse(
      fmt::format("config_version = 1\n[accelerator]\nuse = \"host\"\n[run]\ndeterministic = {}\nworkers = {}\n"
                  "on_nonfinite = \"{}\"\n[coordinator]\nuse = \"{}\"\n{}\n",
                  job.deterministic, job.ranks, job.looks_at_gradients ? "stop" : "ignore", job.coordinator,
                  job.options),
      {"accelerator", "coordinator"}, overrides);
}

/// The numbers of the layers' modules.
inline std::vector<uint32_t> add_layers(ModelTables& model, const LayerShapes& layers) {
  std::vector<uint32_t> modules;
  model.add(ModuleSpec{.name = "model", .parent = std::nullopt, .own = {}, .external = {}});
  for (size_t i = 0; i < layers.size(); ++i) {
    ModuleSpec layer{.name = fmt::format("layer.{}", i), .parent = ModuleId{0}, .own = {}, .external = {}};
    for (size_t k = 0; k < layers[i].size(); ++k) {
      ParameterSpec parameter;
      parameter.name = fmt::format("layer.{}.{}", i, k);
      parameter.shape = {layers[i][k]};
      parameter.initialise = [](std::span<float> values) { std::fill(values.begin(), values.end(), 1.0F); };
      layer.own.push_back(ParameterId{model.add(std::move(parameter))});
    }
    modules.push_back(model.add(std::move(layer)));
  }
  return modules;
}

/// A rank of the job on a device of its own.
class TimedRank {
 public:
  TimedRank(const TimedJob& job, const Accelerator& accelerator, Communicator& group, int32_t rank)
      : job_(job),
        accelerator_(accelerator),
        rank_(rank),
        program_(accelerator, 0),
        exchange_(accelerator, 0, StreamRole::kGather),
        runtime_(config_of(job), accelerator, 0, program_, exchange_, {}),
        layers_(add_layers(runtime_.model, job.layers)) {
    runtime_.close_model();
    runtime_.enter_group(group);
    runtime_.initialise();
  }
  ~TimedRank() { runtime_.leave_group(); }
  TimedRank(const TimedRank&) = delete;
  TimedRank& operator=(const TimedRank&) = delete;

  /// Nanoseconds of its passes.
  uint64_t step() {
    const int64_t rows = job_.passes * job_.ranks;
    const Assignment dealt =
        share_out(rows, {.world_size = job_.ranks, .granule = 1, .deterministic = job_.deterministic, .in_turn = true});
    runtime_.begin_step(rows, 1, dealt, job_.looks_at_gradients);
    program_.synchronize();
    exchange_.synchronize();
    Event begin(accelerator_, 0, true);
    Event ends[] = {Event(accelerator_, 0, true), Event(accelerator_, 0, true)};
    begin.record(program_);
    const std::span<const RowRange> own = dealt.of(rank_);
    for (size_t i = 0; i < own.size(); i += job_.at_once) pass(own.subspan(i, job_.at_once));
    ends[0].record(program_);
    ends[1].record(exchange_);
    program_.synchronize();
    exchange_.synchronize();
    const double seconds = std::max(ends[0].seconds_since(begin), ends[1].seconds_since(begin));
    runtime_.finish_gradient(1);
    runtime_.allow_update();
    runtime_.update([](const ShardRange&) {});
    return static_cast<uint64_t>(std::llround(seconds * 1e9));
  }

 private:
  void pass(std::span<const RowRange> micro_batches) {
    runtime_.begin_pass(micro_batches);
    runtime_.enter(0, Direction::kForward);
    for (const uint32_t layer : layers_) visit(layer, Direction::kForward);
    runtime_.leave(0, Direction::kForward);
    runtime_.enter(0, Direction::kBackward);
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) visit(*layer, Direction::kBackward);
    runtime_.leave(0, Direction::kBackward);
    runtime_.end_pass();
  }
  void visit(uint32_t layer, Direction direction) {
    const bool backward = direction == Direction::kBackward;
    runtime_.enter(layer, direction);
    for (size_t i = 0; i < job_.at_once; ++i) {
      if (backward) runtime_.begin_micro_batch(i);
      for (const uint32_t parameter : runtime_.model.modules()[layer].used) {
        if (backward) runtime_.gradient(parameter);
      }
      program_.spend(std::chrono::nanoseconds(backward ? 2 * job_.forward_ns : job_.forward_ns));
    }
    runtime_.leave(layer, direction);
  }

  const TimedJob& job_;
  const Accelerator& accelerator_;
  const int32_t rank_;
  Stream program_;
  Stream exchange_;
  Runtime runtime_;
  const std::vector<uint32_t> layers_;
};

/// Nanoseconds of each step on the clock of the simulator: of the slowest rank.
inline std::vector<uint64_t> steps_on_sim(const TimedJob& job) {
  const std::string options = fmt::format(
      "host_visible = false\nclock = \"virtual\"\nlaunch_us = {}.0\nmemory_gbps = {}.0\ncollective_us = {}.0\n"
      "collective_gbps = {}.0\n",
      job.launch_us, job.memory_gbps, job.collective_us, job.collective_gbps);
  const auto ranks = static_cast<size_t>(job.ranks);
  std::vector<Accelerator> devices;
  for (size_t i = 0; i < ranks; ++i) devices.push_back(test::sim(options));
  const CommId id = devices.front().make_comm_id(job.ranks);
  std::vector<std::vector<uint64_t>> times(ranks);
  std::vector<std::exception_ptr> thrown(ranks);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks; ++i) {
    threads.emplace_back([&, i] {
      try {
        const auto number = static_cast<int32_t>(i);
        Communicator group(devices[i], 0, id, number, job.ranks);
        group.wait_ready(60000);
        TimedRank rank(job, devices[i], group, number);
        for (int step = 0; step < job.steps; ++step) times[i].push_back(rank.step());
      } catch (...) {
        thrown[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& one : thrown) {
    if (one) std::rethrow_exception(one);
  }
  std::vector<uint64_t> slowest(static_cast<size_t>(job.steps));
  for (size_t step = 0; step < slowest.size(); ++step) {
    for (const std::vector<uint64_t>& of_rank : times) slowest[step] = std::max(slowest[step], of_rank[step]);
  }
  return slowest;
}

/// The same steps on paper.
inline std::vector<StepTime> steps_on_paper(const TimedJob& job) {
  ModelTables model;
  add_layers(model, job.layers);
  model.close();
  const Config config = config_of(job);
  StepCosts costs;
  costs.by = StepCosts::By::kWhole;
  costs.gather = {static_cast<uint64_t>(job.collective_us) * 1000, static_cast<double>(job.collective_gbps)};
  costs.reduce = costs.gather;
  costs.local = {static_cast<uint64_t>(job.launch_us) * 1000, static_cast<double>(job.memory_gbps)};
  StepClock clock(model,
                  {.world_size = job.ranks,
                   .whole = dtype_of(config.coordinator().compute_dtype),
                   .reduce = dtype_of(config.coordinator().reduce_dtype),
                   .looks_at_gradients = job.looks_at_gradients,
                   .deterministic = job.deterministic,
                   .budget = static_cast<uint64_t>(config.coordinator().budget.value_or(0)),
                   .rounds = job.passes,
                   .micro_batches = job.at_once},
                  costs);
  std::vector<StepTime> steps;
  simulate(
      config, model, job.ranks, {job.steps, job.passes / static_cast<int64_t>(job.at_once), job.at_once},
      [&](int) {
        steps.emplace_back();
        clock.begin_step();
      },
      [&](const RehearsedCall& call) {
        const bool computes = call.kind == RehearsedCall::Kind::kEnter && call.module != 0;
        const uint64_t takes = job.at_once * static_cast<uint64_t>(call.backward ? 2 * job.forward_ns : job.forward_ns);
        clock.hear(call, computes ? takes : 0);
        steps.back() = clock.step();
      },
      [&] { return clock.gather_costs(); });
  return steps;
}

}  // namespace pliant::sharded
