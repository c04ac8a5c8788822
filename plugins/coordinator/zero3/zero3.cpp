// Coordinator zero3: parameters are gathered and released as DeepSpeed's ZeRO stage 3 does it, visit by visit.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "cycle.hpp"
#include "reductions.hpp"

namespace pliant::coordinator::zero3 {
namespace {

constexpr int64_t kNoRule = -1;

/// Elements: DeepSpeed's reduce_bucket_size, and the part of a model that a bucket has where that is less.
constexpr uint64_t kDeepSpeedBucket = 500'000'000;
constexpr uint64_t kPartOfModel = 8;

struct Zero3 {
  int64_t prefetch_bucket_size = 50'000'000;
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  int64_t param_persistence_threshold = 100'000;
  int64_t model_persistence_threshold = std::numeric_limits<int64_t>::max();
  std::optional<int64_t> reduce_bucket_size;
  std::string offload_param_device = "none";
  int64_t offload_param_buffer_count = 5;
  std::string version = "head";
  bool strict = false;

  static void options(sdk::Options<Zero3>& table) {
    add_limits(table);
    table
        .add("offload_param_device", &Zero3::offload_param_device,
             "Where shards are kept between uses: \"nvme\" loads them before their gather. This version has no tier "
             "that can do that, so \"nvme\" is refused before a job begins.")
        .choices({"none", "nvme"});
    table
        .add("offload_param_buffer_count", &Zero3::offload_param_buffer_count,
             "With \"nvme\": most shards on the device at once, loaded and not yet released.")
        .at_least(1)
        .unit("buffers");
    table
        .add("version", &Zero3::version,
             "Which DeepSpeed version to follow: \"head\" is that of August 2026; \"seed\" is that of April 2023, "
             "which records from the first pass, resets when a pass ends and has no leaf modules.")
        .choices({"head", "seed"});
    table.add("strict", &Zero3::strict,
              "Fix the faults of DeepSpeed's schedule: what counts as gathered, leftovers of an older trace, exceeded "
              "limits; docs/reference/zero3-parity.md lists them all.");
  }

  void set_model(const sdk::Model& model) {
    require_tier(model);
    refuse_budget(model);
    schedule_ =
        Cycle(Schedule(model, {.prefetch_bucket = prefetch_bucket_size,
                               .max_live = max_live_parameters,
                               .max_reuse_distance = max_reuse_distance,
                               .persistence = {param_persistence_threshold, model_persistence_threshold},
                               .head = version == "head",
                               .strict = strict,
                               .swap_buffers = offload_param_device == "nvme" ? offload_param_buffer_count : -1}));
    reductions_ = Reductions(model.parameters, bucket_of(model));
  }
  /// What is set stays. Else a model below DeepSpeed's bucket would have its whole gradient in one.
  [[nodiscard]] uint64_t bucket_of(const sdk::Model& model) const {
    if (reduce_bucket_size) return static_cast<uint64_t>(*reduce_bucket_size);
    uint64_t trained = 0;
    for (const sdk::Parameter& one : model.parameters) trained += one.frozen ? 0 : one.elements;
    return std::clamp<uint64_t>(trained / kPartOfModel, 1, kDeepSpeedBucket);
  }
  void require_tier(const sdk::Model& model) const {
    if (offload_param_device != "nvme" || model.tiers > 0) return;
    throw sdk::Failure(
        PLIANT_UNIMPLEMENTED,
        "offload_param_device = \"nvme\" needs a tier below the device, and this version has none; remove the option",
        "offload_param_device");
  }
  /// DeepSpeed counts elements, and its limits are soft.
  static void refuse_budget(const sdk::Model& model) {
    uint64_t bytes = 0;  // gradients may all wait for the end of a pass
    bool has_gradients = false;
    bool is_known = false;  // what gradients take is, of these workers
    for (const sdk::Parameter& one : model.parameters) {
      bytes += one.bytes + one.gradient_bytes + one.received_bytes;
      has_gradients = has_gradients || (!one.frozen && one.elements > 0);
      is_known = is_known || one.gradient_bytes > 0;
    }
    if (model.budget == 0 || bytes <= model.budget) return;
    const std::string needs = is_known || !has_gradients ? " bytes: the whole model and its gradients need "
                                                         : " bytes: beside its gradients the whole model needs ";
    throw sdk::Failure(PLIANT_FAILED_PRECONDITION, "keeps no budget of " + std::to_string(model.budget) + needs +
                                                       std::to_string(bytes) +
                                                       ". Its own limits are max_live_parameters and "
                                                       "max_reuse_distance, in elements; \"planned\" keeps a budget");
  }
  void set_module_parameters(uint32_t module, std::span<const uint32_t> own, std::span<const uint32_t> external) {
    schedule_.set_parameters(module, own, external);
  }
  void begin_pass(bool with_gradient, sdk::Actions& actions) {
    reductions_.forget();
    schedule_.begin_pass(with_gradient, actions);
  }
  void enter(const sdk::Visit& visit, sdk::Actions& actions) { schedule_.enter(visit, actions); }
  void leave(const sdk::Visit& visit, sdk::Actions& actions) {
    schedule_.leave(visit, actions);
    reductions_.collect(visit.complete, actions);
  }
  void end_pass(sdk::Actions& actions) {
    reductions_.flush(actions);
    schedule_.end_pass(actions);
  }
  void end_step(sdk::Actions& actions) {
    reductions_.forget();
    schedule_.release_all(actions);
  }
  void drop_trace(sdk::Actions& actions) { schedule_.drop_trace(actions); }
  [[nodiscard]] sdk::CoordinatorCounts counts() const { return schedule_.counts(); }
  static const void* extension(const char* id) { return sdk::counters_of<Zero3>(id); }

 private:
  static void add_limits(sdk::Options<Zero3>& table) {
    table
        .add("prefetch_bucket_size", &Zero3::prefetch_bucket_size, "Most elements prefetched at once; 0 = no prefetch.")
        .at_least(0)
        .unit("elements");
    table
        .add("max_live_parameters", &Zero3::max_live_parameters,
             "Number of gathered elements above which nothing is prefetched.")
        .at_least(0)
        .unit("elements");
    table
        .add("max_reuse_distance", &Zero3::max_reuse_distance,
             "Do not release a parameter that is used again within this many elements.")
        .at_least(0)
        .unit("elements");
    table
        .add("param_persistence_threshold", &Zero3::param_persistence_threshold,
             "Parameters of at most this many elements stay gathered between uses, in the order of the model, besides "
             "those that the program marks; -1 = only the marked ones.")
        .at_least(kNoRule)
        .unit("elements");
    table
        .add("model_persistence_threshold", &Zero3::model_persistence_threshold,
             "Most elements in total of the parameters that stay gathered by param_persistence_threshold.")
        .at_least(0)
        .unit("elements");
    table
        .add("reduce_bucket_size", &Zero3::reduce_bucket_size,
             "Number of elements of complete gradients to collect before they are reduced together; unset = an eighth "
             "of the model's trained elements, at most 500000000. One as large as the model holds its whole gradient.")
        .at_least(1)
        .unit("elements");
  }

  Cycle schedule_;
  Reductions reductions_;
};

}  // namespace
}  // namespace pliant::coordinator::zero3

PLIANT_COORDINATOR(pliant::coordinator::zero3::Zero3, "zero3", "0.1.0",
                   "Gathers, prefetches and releases parameters as DeepSpeed's ZeRO stage 3 does")
