// Traces, small and random, and whether two are the same.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sharded/trace/trace_file.hpp"
#include "sharded/trace/trace_words.hpp"

namespace pliant::sharded {

/// A root, and layers of a weight and a frozen bias below it; the last uses the first one's weight, too, and the one
/// before it is a leaf with a module below.
inline ModelTables traced_model(uint32_t layers) {
  ModelTables made;
  const auto add = [&made](std::string name, std::vector<int64_t> shape, bool frozen) {
    ParameterSpec spec;
    spec.name = std::move(name);
    spec.shape = std::move(shape);
    spec.frozen = frozen;
    spec.persistent = frozen;
    spec.external = !frozen && made.parameters().empty();
    spec.initialise = [](std::span<float>) {};
    return ParameterId{made.add(std::move(spec))};
  };
  made.add(ModuleSpec{.name = "model", .parent = std::nullopt, .own = {}, .external = {}});
  for (uint32_t i = 0; i < layers; ++i) {
    const std::string name = "layer." + std::to_string(i);
    const ParameterId weight = add(name + ".weight", {4, 2}, false);
    const ParameterId bias = add(name + ".bias", {}, true);
    ModuleSpec layer{.name = name, .parent = ModuleId{0}, .own = {weight, bias}, .external = {}};
    layer.leaf = i + 2 == layers;
    if (i + 1 == layers && i > 0) layer.external = {ParameterId{0}};
    const ModuleId number{made.add(layer)};
    if (layer.leaf) made.add(ModuleSpec{.name = name + ".below", .parent = number, .own = {bias}, .external = {}});
  }
  made.close();
  return made;
}

/// A call of a rank that begins at `began`, in microseconds.
inline TracedCall traced_call(TracedCall::Kind kind, double began, std::optional<uint32_t> module = std::nullopt,
                              Direction direction = Direction::kForward, std::vector<pliant_action> actions = {}) {
  TracedCall made;
  made.kind = kind;
  made.module = module;
  made.direction = direction;
  made.began = began;
  made.ended = began + 2.5;
  made.actions = std::move(actions);
  made.live_bytes = 1024;
  made.most_bytes = 2048;
  return made;
}

/// A pass over one layer of traced_model(3), by two ranks in two generations.
inline TraceFile small_trace() {
  using Kind = TracedCall::Kind;
  TraceFile made;
  made.run = "20261124-023000-0123456789ab \"\n\xc3\xa9";
  made.coordinator = "planned";
  made.budget = uint64_t{1} << 40U;
  made.reduce = DType::kBF16;
  made.host_visible = false;
  made.model = traced_model(3);
  for (const int64_t generation : {1, 3}) {
    for (const int32_t rank : {0, 1}) {
      TracedRank one;
      one.rank = rank;
      one.worker = rank + 10 * generation;
      one.generation = generation;
      one.world_size = 2;
      one.is_cut = rank == 1;
      one.calls = {
          traced_call(Kind::kBeginPass, 0),
          traced_call(Kind::kEnter, 10.125, 0),
          traced_call(Kind::kEnter, 20, 1, Direction::kForward,
                      {{PLIANT_ACTION_GATHER, 0, 1, 0, 256},
                       {PLIANT_ACTION_GATHER, 1, 1, 0, PLIANT_ANY_PLACE},
                       {PLIANT_ACTION_GATHER, 2, 2, PLIANT_ACTION_PREFETCH, 0},
                       {PLIANT_ACTION_WAIT, 0, 0, 0, 0}}),
          traced_call(Kind::kLeave, 30, 1, Direction::kForward, {{PLIANT_ACTION_RELEASE, 0, 0, 0, 0}}),
          traced_call(Kind::kLeave, 40, 0),
          traced_call(Kind::kEndPass, 50, std::nullopt, Direction::kForward,
                      {{PLIANT_ACTION_BOUND_WAITS, PLIANT_NO_PARAMETER, 0, 0, 4},
                       {PLIANT_ACTION_DROP_TRACE, PLIANT_NO_PARAMETER, 0, 0, 0}}),
          traced_call(Kind::kEndStep, 60.001),
      };
      for (TracedCall& call : one.calls) call.step = generation;
      one.calls.front().micro_batches = 3;
      TracedTransfer gather;
      gather.parameters = {0, 1};
      gather.bytes = 36;
      gather.call = 2;
      gather.began = 21;
      gather.ended = 22.75;
      TracedTransfer reduce;
      reduce.kind = TracedTransfer::Kind::kReduce;
      reduce.is_ahead = true;
      reduce.call = 5;
      reduce.began = reduce.ended = 51;
      one.transfers = {gather, reduce};
      one.waits = {{TracedTransfer::Kind::kGather, 0, 2, 21.5, 22.75}, {TracedTransfer::Kind::kReduce, 4, 5, 52, 53}};
      made.ranks.push_back(std::move(one));
    }
  }
  return made;
}

/// Any calls in any order, of a model of up to 40 layers.
inline TraceFile random_trace(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](uint64_t count) { return random() % count; };
  const auto when = [&] { return static_cast<double>(below(uint64_t{1} << 50U)) / 1000; };
  TraceFile made;
  made.run = std::to_string(random());
  const bool is_sharded = below(8) > 0;
  if (is_sharded) made.model = traced_model(static_cast<uint32_t>(1 + below(40)));
  const uint64_t modules = is_sharded ? made.model->modules().size() : 0;
  const uint64_t parameters = is_sharded ? made.model->parameters().size() : 0;
  const auto parameter = [&] { return static_cast<uint32_t>(below(parameters)); };
  made.coordinator = is_sharded ? "some" : "";
  made.budget = random();
  if (below(2) > 0) made.compute = DType::kBF16;
  made.host_visible = below(2) > 0;
  for (uint64_t ranks = below(4); ranks > 0; --ranks) {
    TracedRank rank;
    rank.rank = static_cast<int32_t>(below(100));
    rank.worker = static_cast<int64_t>(below(1000));
    rank.generation = static_cast<int64_t>(below(1000));
    rank.world_size = static_cast<int32_t>(1 + below(100));
    for (uint64_t calls = below(30); calls > 0; --calls) {
      TracedCall call = traced_call(static_cast<TracedCall::Kind>(is_sharded ? below(7) : 5), when());
      const bool is_visit = call.kind == TracedCall::Kind::kEnter || call.kind == TracedCall::Kind::kLeave;
      if (is_visit) call.module = static_cast<uint32_t>(below(std::min<uint64_t>(modules, 3)));
      call.direction = static_cast<Direction>(below(3));
      call.ended = when();
      call.step = static_cast<int64_t>(below(uint64_t{1} << 60U));
      call.live_bytes = random();
      call.most_bytes = random();
      if (call.kind == TracedCall::Kind::kBeginPass)
        call.micro_batches = static_cast<uint32_t>(1 + below(kMostMicroBatches));
      for (uint64_t actions = is_sharded ? below(5) : 0; actions > 0; --actions) {
        const auto kind = static_cast<uint32_t>(below(12));
        const bool has_parameter = moves_parameter(kind) || below(3) > 0;
        call.actions.push_back({kind, has_parameter ? parameter() : PLIANT_NO_PARAMETER,
                                static_cast<uint32_t>(below(3)), static_cast<uint32_t>(below(3)),
                                below(2) > 0 ? random() : PLIANT_ANY_PLACE});
      }
      rank.calls.push_back(std::move(call));
    }
    for (uint64_t some = is_sharded && !rank.calls.empty() ? below(10) : 0; some > 0; --some) {
      TracedTransfer transfer;
      transfer.kind = static_cast<TracedTransfer::Kind>(below(2));
      for (uint64_t count = below(4); count > 0; --count) transfer.parameters.push_back(parameter());
      transfer.bytes = random();
      transfer.is_ahead = below(2) > 0;
      transfer.call = below(rank.calls.size());
      transfer.began = when();
      transfer.ended = when();
      rank.transfers.push_back(std::move(transfer));
      rank.waits.push_back(
          {static_cast<TracedTransfer::Kind>(below(2)), parameter(), below(rank.calls.size()), when(), when()});
    }
    made.ranks.push_back(std::move(rank));
  }
  return made;
}

inline bool same_actions(const std::vector<pliant_action>& a, const std::vector<pliant_action>& b) {
  const auto is_same = [](const pliant_action& x, const pliant_action& y) {
    return x.kind == y.kind && x.parameter == y.parameter && x.group == y.group && x.flags == y.flags &&
           x.place == y.place;
  };
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), is_same);
}

/// All of it, times to the bit.
inline void check_same(const TraceFile& a, const TraceFile& b) {
  CHECK(a.run == b.run);
  CHECK(a.coordinator == b.coordinator);
  CHECK(a.budget == b.budget);
  CHECK(a.compute == b.compute);
  CHECK(a.reduce == b.reduce);
  CHECK(a.host_visible == b.host_visible);
  REQUIRE(a.model.has_value() == b.model.has_value());
  if (a.model) {
    CHECK(a.model->description() == b.model->description());
    REQUIRE(a.model->modules().size() == b.model->modules().size());
    for (size_t i = 0; i < a.model->modules().size(); ++i)
      CHECK(a.model->modules()[i].used == b.model->modules()[i].used);
    CHECK(b.model->is_closed());
  }
  REQUIRE(a.ranks.size() == b.ranks.size());
  for (size_t i = 0; i < a.ranks.size(); ++i) {
    const TracedRank& x = a.ranks[i];
    const TracedRank& y = b.ranks[i];
    CAPTURE(i);
    CHECK(std::tuple(x.rank, x.worker, x.generation, x.world_size, x.is_cut) ==
          std::tuple(y.rank, y.worker, y.generation, y.world_size, y.is_cut));
    REQUIRE(x.calls.size() == y.calls.size());
    for (size_t k = 0; k < x.calls.size(); ++k) {
      const TracedCall& c = x.calls[k];
      const TracedCall& d = y.calls[k];
      CAPTURE(k);
      CHECK(std::tie(c.kind, c.module, c.direction, c.step, c.micro_batches, c.began, c.ended, c.live_bytes,
                     c.most_bytes) == std::tie(d.kind, d.module, d.direction, d.step, d.micro_batches, d.began, d.ended,
                                               d.live_bytes, d.most_bytes));
      CHECK(same_actions(c.actions, d.actions));
    }
    REQUIRE(x.transfers.size() == y.transfers.size());
    for (size_t k = 0; k < x.transfers.size(); ++k) {
      const TracedTransfer& c = x.transfers[k];
      const TracedTransfer& d = y.transfers[k];
      CHECK(std::tie(c.kind, c.parameters, c.bytes, c.is_ahead, c.call, c.began, c.ended) ==
            std::tie(d.kind, d.parameters, d.bytes, d.is_ahead, d.call, d.began, d.ended));
    }
    REQUIRE(x.waits.size() == y.waits.size());
    for (size_t k = 0; k < x.waits.size(); ++k) {
      const TracedWait& c = x.waits[k];
      const TracedWait& d = y.waits[k];
      CHECK(std::tie(c.of, c.parameter, c.call, c.began, c.ended) ==
            std::tie(d.of, d.parameter, d.call, d.began, d.ended));
    }
  }
}

}  // namespace pliant::sharded
