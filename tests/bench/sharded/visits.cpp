#include "bench/sharded/visits.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "pliant/balancer.hpp"
#include "pliant/config.hpp"
#include "pliant/sharded.hpp"
#include "sharded/coordinator.hpp"
#include "sharded/memory/arena_needs.hpp"
#include "sharded/runtime.hpp"
#include "sharded/shards/layout.hpp"
#include "sharded/shards/segments.hpp"
#include "sharded/trace/trace_log.hpp"
#include "sharded/trace/trace_recorder.hpp"

namespace pliant::bench {
namespace {

constexpr uint32_t kLayers = 16;
constexpr int kUntilSteady = 8;  // steps until orders are known and memory was touched
constexpr int kSteps = 40;       // that are timed
constexpr std::array<Direction, 2> kDirections{Direction::kForward, Direction::kBackward};

/// A layer is gathered in each visit and released: what may be whole at once is a few layers.
struct Bounds {
  std::string lines;  ///< of [coordinator]
  std::string words;
};

Bounds bounds_of(const std::string& coordinator, size_t parameters) {
  const int64_t layer = kElements * static_cast<int64_t>(parameters);
  if (coordinator == "zero3") {
    return {fmt::format("[coordinator.zero3]\nprefetch_bucket_size = {}\nmax_live_parameters = {}\n"
                        "max_reuse_distance = 0\nparam_persistence_threshold = -1\nreduce_bucket_size = {}\n",
                        2 * layer, 4 * layer, layer),
            "prefetches 2 layers, 4 live"};
  }
  if (coordinator == "planned") {
    return {fmt::format("budget = {}\n", 4 * layer * static_cast<int64_t>(sizeof(float))), "budget of 4 layers"};
  }
  return {"", "no bound"};
}

Config config_of(const std::string& coordinator, const std::string& lines) {
  ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  return Config::parse(fmt::format("config_version = 1\n[accelerator]\nuse = \"host\"\n[run]\ndeterministic = true\n"
                                   "[coordinator]\nuse = \"{}\"\n{}",
                                   coordinator, lines),
                       {"accelerator", "coordinator"}, overrides);
}

/// Module 0 is the root, the others are layers; layer i has the parameters from (i - 1) * `parameters` on.
void add_layers(sharded::ModelTables& model, size_t parameters) {
  std::vector<ModuleSpec> layers;
  for (uint32_t layer = 1; layer <= kLayers; ++layer) {
    ModuleSpec module{.name = fmt::format("layer.{}", layer), .parent = ModuleId{0}, .own = {}, .external = {}};
    for (size_t i = 0; i < parameters; ++i) {
      ParameterSpec one;
      one.name = fmt::format("layer.{}.{}", layer, i);
      one.shape = {kElements};
      one.initialise = [](std::span<float> values) { std::fill(values.begin(), values.end(), 0.5F); };
      module.own.push_back(ParameterId{model.add(std::move(one))});
    }
    layers.push_back(std::move(module));
  }
  model.add(ModuleSpec{.name = "model", .parent = std::nullopt, .own = {}, .external = {}});
  for (ModuleSpec& layer : layers) model.add(std::move(layer));
}

uint32_t layer_at(Direction direction, uint32_t place) {
  return direction == Direction::kForward ? place + 1 : kLayers - place;
}

/// By direction.
struct Samples {
  std::vector<double> thread, whole, decision;
  uint64_t groups = 0;
};
using SamplesOfPass = std::array<Samples, 2>;

/// One rank, that makes steps.
class Program {
 public:
  Program(sharded::Runtime& runtime, size_t parameters, int32_t rank, int32_t world_size)
      : runtime_(runtime), parameters_(parameters), rank_(rank), world_size_(world_size) {
    runtime.watch([this](sharded::Runtime::Begun begun) {
      if (begun == sharded::Runtime::Begun::kGather) ++groups_;
    });
  }
  void step(SamplesOfPass& into) {
    const Assignment dealt =
        share_out(world_size_,
                  {.world_size = world_size_, .micro_batch = 1, .granule = 1, .deterministic = true, .in_turn = true});
    runtime_.begin_step(world_size_, 1, dealt, false);
    runtime_.begin_pass(dealt.of(rank_).front());
    for (size_t i = 0; i < kDirections.size(); ++i) {
      const uint64_t before = groups_;
      runtime_.enter(0, kDirections[i]);
      for (uint32_t place = 0; place < kLayers; ++place)
        visit(layer_at(kDirections[i], place), kDirections[i], into[i]);
      runtime_.leave(0, kDirections[i]);
      into[i].groups += groups_ - before;
    }
    runtime_.end_pass();
    runtime_.finish_gradient(1);
  }

 private:
  void visit(uint32_t layer, Direction direction, Samples& into) {
    double thread = 0;
    double whole = 0;
    const auto timed = [&](const auto& call) {
      const double wall_begin = wall_micros();
      const double begin = thread_micros();
      call();
      thread += thread_micros() - begin;
      whole += wall_micros() - wall_begin;
    };
    timed([&] { runtime_.enter(layer, direction); });
    for (size_t i = 0; i < parameters_; ++i) {
      const auto parameter = static_cast<uint32_t>((layer - 1) * parameters_ + i);
      if (direction == Direction::kBackward) {
        *static_cast<float*>(runtime_.gradient(parameter)) += *static_cast<float*>(runtime_.value(parameter));
      } else {
        static_cast<void>(runtime_.value(parameter));  // throws where it is not whole
      }
    }
    timed([&] { runtime_.leave(layer, direction); });
    into.thread.push_back(thread);
    into.whole.push_back(whole);
  }

  sharded::Runtime& runtime_;
  const size_t parameters_;
  const int32_t rank_;
  const int32_t world_size_;
  uint64_t groups_ = 0;
};

/// A coordinator that is asked alike and is not followed.
class Alone {
 public:
  Alone(const Config& config, size_t parameters, int32_t world_size) : coordinator_(config) {
    add_layers(model_, parameters);
    model_.close();
    const auto layout = or_throw(sharded::FlatLayout::create(static_cast<int64_t>(model_.elements())));
    const auto owners = sharded::dealt(model_, layout, world_size);
    const auto rooms =
        sharded::gradient_room(model_, sharded::most_owned(model_, layout, owners), world_size, DType::kF32);
    coordinator_.set_model(model_, static_cast<uint64_t>(config.coordinator().budget.value_or(0)), DType::kF32,
                           world_size, rooms);
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      complete_.emplace_back(parameters);
      std::iota(complete_.back().begin(), complete_.back().end(), static_cast<uint32_t>(layer * parameters));
    }
  }
  void step(SamplesOfPass& into) {
    coordinator_.begin_pass(true);
    for (size_t i = 0; i < kDirections.size(); ++i) {
      const Direction direction = kDirections[i];
      coordinator_.enter(0, direction);
      const double begin = thread_micros();
      for (uint32_t place = 0; place < kLayers; ++place) {
        const uint32_t layer = layer_at(direction, place);
        coordinator_.enter(layer, direction);
        coordinator_.leave(layer, direction, direction == Direction::kBackward ? complete_[layer - 1] : kNone);
      }
      into[i].decision.push_back((thread_micros() - begin) / kLayers);
      coordinator_.leave(0, direction, kNone);
    }
    coordinator_.end_pass();
    coordinator_.end_step();
  }

 private:
  static inline const std::vector<uint32_t> kNone;
  sharded::ModelTables model_;
  sharded::Coordinator coordinator_;
  std::vector<std::vector<uint32_t>> complete_;
};

/// A rank's trace, gone with it.
class Trace {
 public:
  Trace(const Accelerator& accelerator, int32_t rank)
      : file_(std::filesystem::temp_directory_path() / fmt::format("pliant-bench-{}-{}.trace", ::getpid(), rank)),
        recorder(accelerator, 0, or_throw(sharded::TraceLog::create(file_))) {}
  ~Trace() {
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);
  }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

 private:
  const std::filesystem::path file_;

 public:
  sharded::TraceRecorder recorder;
};

/// Of the thread, in one step.
double sum_of(const SamplesOfPass& pass) {
  double sum = 0;
  for (const Samples& one : pass) sum = std::accumulate(one.thread.begin(), one.thread.end(), sum);
  return sum;
}

Visits visits_of(Samples& samples, const std::string& bounds) {
  Visits made;
  made.bounds = bounds;
  made.groups = static_cast<double>(samples.groups) / static_cast<double>(samples.thread.size());
  made.thread = spread_of(std::move(samples.thread));
  made.whole = spread_of(std::move(samples.whole));
  made.decision = spread_of(std::move(samples.decision));
  return made;
}

}  // namespace

VisitsOfPass measure_visits(const Accelerator& accelerator, const std::string& coordinator, int32_t world_size,
                            size_t parameters) {
  const Bounds bounds = bounds_of(coordinator, parameters);
  const Config config = config_of(coordinator, bounds.lines);
  SamplesOfPass all;
  std::mutex mutex;
  on_ranks(accelerator, world_size, [&](int32_t rank, Communicator& group, Stream& exchange) {
    Stream stream(accelerator, 0);
    sharded::Runtime runtime(config, accelerator, 0, stream, exchange, {});
    add_layers(runtime.model, parameters);
    runtime.close_model();
    runtime.enter_group(group);
    runtime.initialise();
    Alone alone(config, parameters, world_size);
    Program program(runtime, parameters, rank, world_size);
    SamplesOfPass own;
    for (int step = 0; step < kUntilSteady + kSteps; ++step) {
      if (step == kUntilSteady) own = {};
      program.step(own);
      alone.step(own);
    }
    runtime.leave_group();
    const std::lock_guard lock(mutex);
    const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (size_t i = 0; i < all.size(); ++i) {
      append(all[i].thread, own[i].thread);
      append(all[i].whole, own[i].whole);
      append(all[i].decision, own[i].decision);
      all[i].groups += own[i].groups;
    }
  });
  return {visits_of(all[0], bounds.words), visits_of(all[1], bounds.words)};
}

TracedVisits measure_traced_visits(const Accelerator& accelerator, const std::string& coordinator, int32_t world_size,
                                   size_t parameters) {
  const Config config = config_of(coordinator, bounds_of(coordinator, parameters).lines);
  std::array<std::vector<double>, 3> all;
  std::mutex mutex;
  on_ranks(accelerator, world_size, [&](int32_t rank, Communicator& group, Stream& exchange) {
    Trace trace(accelerator, rank);
    Stream stream(accelerator, 0);
    sharded::Runtime runtime(config, accelerator, 0, stream, exchange, {});
    add_layers(runtime.model, parameters);
    runtime.close_model();
    runtime.enter_group(group);
    runtime.initialise();
    runtime.record(&trace.recorder);
    runtime.begin_recording(1);
    Program program(runtime, parameters, rank, world_size);
    std::array<std::vector<double>, 3> own;
    constexpr double kVisits = 2.0 * kLayers;
    for (int step = 0; step < kUntilSteady + 2 * kSteps; step += 2) {
      std::array<double, 2> took{};
      for (size_t i = 0; i < took.size(); ++i) {
        runtime.record(i == 1 ? &trace.recorder : nullptr);
        SamplesOfPass made;
        program.step(made);
        took[i] = sum_of(made) / kVisits;
      }
      if (step < kUntilSteady) continue;
      own[0].push_back(took[0]);
      own[1].push_back(took[1]);
      own[2].push_back(took[1] - took[0]);
    }
    runtime.record(nullptr);
    runtime.leave_group();
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < all.size(); ++i) all[i].insert(all[i].end(), own[i].begin(), own[i].end());
  });
  return {spread_of(std::move(all[0])), spread_of(std::move(all[1])), spread_of(std::move(all[2]))};
}

}  // namespace pliant::bench
