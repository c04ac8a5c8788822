// Coordinator planned: knows the passes of a job, and gathers ahead within a budget that it keeps.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "planner.hpp"

namespace pliant::coordinator::planned {
namespace {

/// Bytes, and the part of a model's gradients that a bucket has where that is less.
constexpr uint64_t kBucket = uint64_t{1} << 20U;
constexpr uint64_t kPartOfModel = 4;

struct Planned {
  int64_t ahead = 2;
  int64_t gather_bucket = int64_t{1} << 20U;
  int64_t traces = 16;
  std::optional<int64_t> reduce_bucket;

  static void options(sdk::Options<Planned>& table) {
    table.add("ahead", &Planned::ahead, "Most prefetches in flight at once; 0 = no prefetch.")
        .at_least(0)
        .unit("gathers");
    table
        .add("gather_bucket", &Planned::gather_bucket,
             "Prefetches of successive visits are merged into one gather until it has this many bytes or serves 16 "
             "visits; the next visit's gather stays alone. 0 = one gather per visit.")
        .at_least(0)
        .unit("bytes");
    table
        .add("traces", &Planned::traces,
             "Number of visit orders to remember, separately for passes with and without gradients; the least recently "
             "seen order is dropped first.")
        .range(1, 4096)
        .unit("traces");
    table
        .add("reduce_bucket", &Planned::reduce_bucket,
             "Complete gradients are collected until they have this many bytes and are then reduced together; fewer "
             "bytes if the budget leaves no room. Unset = a quarter of the model's gradients, at most 1048576.")
        .at_least(0)
        .unit("bytes");
  }

  void set_model(const sdk::Model& model) {
    planner_ = Planner(model, {static_cast<uint64_t>(traces), static_cast<uint64_t>(ahead), bucket_of(model),
                               static_cast<uint64_t>(gather_bucket)});
  }
  /// What is set stays. Else a small model would have its whole gradient in one.
  [[nodiscard]] uint64_t bucket_of(const sdk::Model& model) const {
    if (reduce_bucket) return static_cast<uint64_t>(*reduce_bucket);
    uint64_t bytes = 0;
    for (const sdk::Parameter& one : model.parameters) {
      if (!one.frozen) bytes += one.gradient_bytes > 0 ? one.gradient_bytes : one.elements * sizeof(float);
    }
    return std::min(bytes / kPartOfModel, kBucket);
  }
  void set_module_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external) {
    planner_.set_parameters(module, own, external);
  }
  void set_costs(std::span<const uint64_t> nanoseconds) { planner_.set_costs(nanoseconds); }
  void begin_pass(bool with_gradient, sdk::Actions& actions) { planner_.begin_pass(with_gradient, actions); }
  void enter(const sdk::Visit& visit, sdk::Actions& actions) { planner_.enter(visit, actions); }
  void leave(const sdk::Visit& visit, sdk::Actions& actions) { planner_.leave(visit, actions); }
  void end_pass(sdk::Actions& actions) { planner_.end_pass(actions); }
  void end_step(sdk::Actions& actions) { planner_.end_step(actions); }
  void drop_trace(sdk::Actions& actions) { planner_.drop_trace(actions); }
  [[nodiscard]] sdk::CoordinatorCounts counts() const { return planner_.counts(); }
  static const void* extension(const char* id) { return sdk::counters_of<Planned>(id); }
  void save(sdk::Writer& out) const { planner_.save(out); }
  void load(sdk::Reader& in) { planner_.load(in); }

 private:
  Planner planner_;
};

}  // namespace
}  // namespace pliant::coordinator::planned

PLIANT_COORDINATOR(pliant::coordinator::planned::Planned, "planned", "0.1.0",
                   "Learns the passes of the program, prefetches parameters, and keeps its budget")
