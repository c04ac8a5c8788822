// MixedModel: a small sharded model with one parameter of every sort, trained by passes over one or several
// micro-batches, and what comes of it.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/piecewise_norm.hpp"
#include "sharded/runtime.hpp"
#include "unit/sharded/networks.hpp"

namespace pliant::sharded {

/// Rounds to the nearest bf16, halves to even.
inline float as_bf16(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  bits += 0x7FFFU + ((bits >> 16U) & 1U);
  return std::bit_cast<float>(bits & 0xFFFF0000U);
}

/// Elements of an array of the device.
inline std::vector<float> read_floats(const void* there, DType type, uint64_t count, Stream& stream) {
  std::vector<float> values(count);
  if (count == 0) return values;
  std::vector<uint16_t> halves(type == DType::kF32 ? 0 : count);
  void* const to = type == DType::kF32 ? static_cast<void*>(values.data()) : halves.data();
  stream.copy(to, there, count * bytes_of(type));
  stream.synchronize();
  for (uint64_t k = 0; k < halves.size(); ++k) values[k] = std::bit_cast<float>(uint32_t{halves[k]} << 16U);
  return values;
}

inline void write_floats(void* there, DType type, const std::vector<float>& values, Stream& stream) {
  if (values.empty()) return;
  std::vector<uint16_t> halves;
  for (const float value : values)
    halves.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(as_bf16(value)) >> 16U));
  const void* const from = type == DType::kF32 ? static_cast<const void*>(values.data()) : halves.data();
  stream.copy(there, from, values.size() * bytes_of(type));
  stream.synchronize();
}

/// A root with weights of its own, an embedding that the head uses, too, a layer with a frozen part and one without
/// elements, a leaf, a module that no pass visits, a parameter that the head uses unannounced and one that nobody
/// names.
struct MixedModel {
  enum : uint32_t { kRoot, kEmbedding, kLayer, kFrozen, kEmpty, kUnannounced, kNameless, kBelow, kUnvisited };
  static constexpr int64_t kSizes[] = {700, 1500, 3000, 90, 0, 300, 77, 900, 400};
  uint32_t root, embed, layer, leaf, head, unvisited;

  explicit MixedModel(Runtime& runtime) {
    for (uint32_t i = 0; i < std::size(kSizes); ++i) {
      add_parameter(runtime, fmt::format("p{}", i), kSizes[i], i == kFrozen, i == kUnannounced);
    }
    root = add_module(runtime, "model", std::nullopt, {kRoot});
    embed = add_module(runtime, "embed", root, {kEmbedding, kUnannounced});
    layer = add_module(runtime, "layer", root, {kLayer, kFrozen, kEmpty});
    ModuleSpec spec;
    spec.name = "leaf";
    spec.parent = ModuleId{root};
    spec.leaf = true;
    leaf = runtime.model.add(spec);
    add_module(runtime, "below", leaf, {kBelow});
    spec.name = "head";
    spec.leaf = false;
    spec.external = {ParameterId{kEmbedding}};
    head = runtime.model.add(spec);
    unvisited = add_module(runtime, "unvisited", root, {kUnvisited});
    runtime.close_model();
  }

  /// Adds a share of the gradient of some rows.
  static void add(Runtime& runtime, uint32_t parameter, RowRange rows, float share, Stream& program) {
    if (rows.count == 0) return;
    const uint64_t elements = runtime.model.parameter(parameter).elements;
    void* const to = runtime.gradient(parameter);
    std::vector<float> sum = read_floats(to, runtime.reduce_dtype(), elements, program);
    for (uint64_t k = 0; k < elements; ++k) sum[k] += share * gradient_of(rows, k + 1000 * parameter);
    write_floats(to, runtime.reduce_dtype(), sum, program);
  }

  void pass(Runtime& runtime, std::span<const RowRange> ranges, Stream& program) const {
    runtime.begin_pass(ranges);
    runtime.enter(root, Direction::kForward);
    for (const uint32_t module : {embed, layer, leaf, head}) {
      runtime.enter(module, Direction::kForward);
      runtime.leave(module, Direction::kForward);
    }
    runtime.leave(root, Direction::kForward);
    const auto each = [&](uint32_t parameter, bool from_last, float share) {
      for (size_t i = 0; i < ranges.size(); ++i) {
        const size_t number = from_last ? ranges.size() - 1 - i : i;
        if (ranges.size() > 1) runtime.begin_micro_batch(number);
        add(runtime, parameter, ranges[number], share, program);
      }
    };
    const auto visit = [&](uint32_t module, const std::vector<uint32_t>& used, float share) {
      runtime.enter(module, Direction::kBackward);
      for (size_t i = 0; i < ranges.size(); ++i) {
        if (ranges.size() > 1) runtime.begin_micro_batch(i);
        for (const uint32_t parameter : used) add(runtime, parameter, ranges[i], share, program);
      }
      runtime.leave(module, Direction::kBackward);
    };
    runtime.enter(root, Direction::kBackward);
    each(kRoot, false, 0.5F);
    visit(head, {kEmbedding, kUnannounced}, 0.5F);
    visit(leaf, {kBelow}, 1);
    visit(layer, {kLayer, kEmpty}, 1);
    each(kRoot, true, 0.25F);  // a module around others may come back to what it had
    visit(embed, {kEmbedding, kUnannounced}, 0.5F);
    runtime.leave(root, Direction::kBackward);
    each(kUnannounced, true, 0.25F);
    each(kNameless, false, 1);
    runtime.end_pass();
  }
};

struct Outcome {
  std::vector<float> weights;  ///< of all parameters, after three steps
  std::vector<double> norms;   ///< of the mean gradient of each step
  std::vector<double> parts;   ///< squared norms of the gradients of all micro-batches, rank after rank
  uint64_t gathered = 0;       ///< parameters that rank 0 gathered
  uint64_t most = 0;           ///< bytes whole at once, of any rank
  [[nodiscard]] bool has_bits_of(const Outcome& other) const {
    return weights == other.weights && norms == other.norms && parts == other.parts;
  }
};

/// How a job is trained: `at_once` micro-batches in a pass, the last one over what is left.
struct TrainedHow {
  std::string coordinator;
  std::string more;  ///< of [coordinator]
  bool deterministic = true;
  size_t at_once = 1;
};

inline Outcome train_mixed(const Accelerator& accelerator, int32_t world_size, const TrainedHow& how) {
  std::vector<Outcome> of_ranks(static_cast<size_t>(world_size));
  test::run_healthy_ranks(accelerator, world_size, [&](int32_t rank, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of(how.coordinator, how.more, how.deterministic), accelerator, 0, program, stream, {});
    const MixedModel of(runtime);
    runtime.enter_group(group);
    runtime.initialise();
    Outcome& made = of_ranks[static_cast<size_t>(rank)];
    const std::vector<uint64_t> whole{runtime.model.elements()};
    std::vector<elastic::PiecewiseNorm> parts;
    runtime.measure_gradients([&](size_t micro_batch, uint64_t offset, std::span<const float> values) {
      parts.at(micro_batch).add(offset, values);
    });
    for (int step = 0; step < 3; ++step) {
      std::vector<RowRange> own;
      begin_step(runtime, rank, world_size, own);
      parts.assign(own.size(), elastic::PiecewiseNorm(whole));
      for (size_t first = 0; first < own.size(); first += how.at_once) {
        of.pass(runtime, std::span(own).subspan(first, std::min(how.at_once, own.size() - first)), program);
      }
      REQUIRE(runtime.is_complete());
      for (size_t i = 0; i < own.size(); ++i) {
        if (own[i].count > 0) made.parts.push_back(parts[i].sum());
      }
      made.norms.push_back(runtime.finish_gradient(0.125).squared_norm);
      runtime.allow_update();
      runtime.update([&](const ShardRange& range) {
        std::vector<float> weights = read_floats(range.weights, DType::kF32, range.count, program);
        const std::vector<float> gradient = read_floats(range.gradient, DType::kF32, range.count, program);
        for (uint64_t k = 0; k < range.count; ++k) weights[k] -= 1e-6F * gradient[k];
        write_floats(range.weights, DType::kF32, weights, program);
      });
    }
    for (uint32_t parameter = 0; parameter < std::size(MixedModel::kSizes); ++parameter) {
      const std::vector<float> values = read_whole(runtime, parameter);
      made.weights.insert(made.weights.end(), values.begin(), values.end());
    }
    made.gathered = static_cast<uint64_t>(runtime.traced_passes().gathered);
    made.most = runtime.memory().gathered_most;
    CHECK(runtime.memory().gathered == 0);
    runtime.leave_group();
  });
  Outcome all = of_ranks.front();
  for (size_t rank = 1; rank < of_ranks.size(); ++rank) {
    CHECK(of_ranks[rank].weights == all.weights);
    CHECK(of_ranks[rank].norms == all.norms);
    all.parts.insert(all.parts.end(), of_ranks[rank].parts.begin(), of_ranks[rank].parts.end());
    all.most = std::max(all.most, of_ranks[rank].most);
  }
  return all;
}

}  // namespace pliant::sharded
