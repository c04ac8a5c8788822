#include "sharded/predicted_memory.hpp"

#include <algorithm>
#include <vector>

#include "base/result.hpp"
#include "config/instances.hpp"
#include "pliant/balancer.hpp"
#include "sharded/arena_books.hpp"
#include "sharded/memory/shard_memory.hpp"
#include "sharded/shards/exchange.hpp"
#include "sharded/shards/segments.hpp"
#include "sharded/shards/sum_rounds.hpp"

namespace pliant::sharded {
namespace {

/// Of a step, and steps: later ones take no more.
constexpr int64_t kMostPasses = 3;
constexpr int kSteps = 3;

/// What a job measures after its second step is not known. A collective that begins costs as much as some of its bytes
/// anywhere, and so much is enough to say what is kept: parameters of one size cost the same.
std::vector<uint64_t> likely_costs(const ModelTables& model) {
  constexpr uint64_t kStartNs = 20000;
  constexpr uint64_t kBytesInNs = 25;
  std::vector<uint64_t> costs;
  for (const ParameterRow& row : model.parameters())
    costs.push_back(row.elements == 0 ? 0 : kStartNs + row.elements * sizeof(float) / kBytesInNs);
  return costs;
}

struct Sums {
  int64_t rounds = 1;
  uint64_t needed = 1;
};

Sums sums_of(const Config& config, const MemoryOfWhat& what) {
  const bool deterministic = config.run().deterministic;
  const Assignment assignment = share_out(what.rows, {.world_size = what.world_size,
                                                      .micro_batch = what.micro_batch,
                                                      .granule = what.granule,
                                                      .deterministic = deterministic,
                                                      .in_turn = true});
  SumRounds rounds(deterministic);
  rounds.begin_step(what.rows, what.granule, assignment);
  for (size_t i = 0; i < rounds.rounds(); ++i) rounds.begin_round();
  return {static_cast<int64_t>(rounds.rounds()), rounds.sums_needed()};
}

/// As far as the config says: `host` is the CPU, and `sim` computes in its memory.
bool is_on_device(const Config& config) {
  if (!config::is_open(config, "accelerator")) return false;
  const std::string& name = config.use("accelerator");
  return name != "host" && name != "sim";
}

/// `at_once`: micro-batches that a pass is over at most. `play` has the steps of so many passes, each over so many
/// micro-batches, told to books.
template <class Play>
ShardedMemory memory_of(const Config& config, const ModelTables& model, const MemoryOfWhat& what, int64_t at_once,
                        const Play& play) {
  const FlatLayout layout = or_throw(FlatLayout::create(static_cast<int64_t>(model.elements())));
  const Ownership ownership = dealt(model, layout, what.world_size);
  int32_t chunks = 0;
  for (int32_t rank = 0; rank < what.world_size; ++rank) chunks = std::max(chunks, ownership.chunks_of(rank));
  const ArenaBooks::Types types{dtype_of(config.coordinator().compute_dtype),
                                dtype_of(config.coordinator().reduce_dtype), config.run().on_nonfinite != "ignore",
                                is_on_device(config)};
  const uint64_t values = ShardArray::value_bytes(layout, chunks);
  const uint64_t array = ShardArray::most_bytes(layout, chunks);
  const Sums sums = sums_of(config, what);
  ShardedMemory made;
  made.weights = array + (types.whole == DType::kF32 ? 0 : values / sizeof(float) * bytes_of(types.whole));
  made.state = static_cast<uint64_t>(what.states) * array;
  made.sums = sums.needed * values;
  const int64_t in_a_pass = what.in_layer_order ? sums.rounds : std::max<int64_t>(std::min(at_once, sums.rounds), 1);
  ArenaBooks books(model, what.world_size, types, static_cast<uint64_t>(config.coordinator().budget.value_or(0)),
                   static_cast<size_t>(in_a_pass));
  play((sums.rounds + in_a_pass - 1) / in_a_pass, static_cast<size_t>(in_a_pass), books);
  made.gathered = books.taken();
  made.gathered_most = books.take_most();
  return made;
}

}  // namespace

ShardedMemory predicted_memory(const Config& config, const ModelTables& model, const MemoryOfWhat& what) {
  return memory_of(config, model, what, 1, [&](int64_t passes, size_t micro_batches, ArenaBooks& books) {
    simulate(
        config, model, what.world_size, {kSteps, std::min(passes, kMostPasses), micro_batches}, [](int) {},
        [&books](const RehearsedCall& call) { books.hear(call); }, [&model] { return likely_costs(model); });
  });
}

ShardedMemory predicted_memory(const Config& config, const ModelTables& model, const TracedStep& step,
                               const MemoryOfWhat& what) {
  MemoryOfWhat recorded = what;
  recorded.in_layer_order = what.in_layer_order || is_in_layer_order(step);
  const int64_t at_once = most_micro_batches(step);
  return memory_of(config, model, recorded, at_once, [&](int64_t passes, size_t micro_batches, ArenaBooks& books) {
    const TracedStep played = with_passes(step, std::min(passes, std::max(passes_of(step), kMostPasses)));
    const std::vector<TracedStep> steps(kSteps, played);
    simulate(
        config, model, what.world_size, steps, [](int) {}, [&books](const RehearsedCall& call) { books.hear(call); },
        micro_batches, [&model] { return likely_costs(model); });
  });
}

uint64_t deepspeed_estimate(const ModelTables& model, int32_t world_size) {
  uint64_t largest = 0;
  for (const ModuleRow& module : model.modules()) {
    uint64_t own = 0;
    for (const uint32_t parameter : module.own) own += model.parameter(parameter).elements;
    largest = std::max(largest, own);
  }
  return 4 * largest + 18 * model.elements() / static_cast<uint64_t>(world_size);
}

}  // namespace pliant::sharded
