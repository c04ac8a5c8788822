// Policy v0.1: the batch at or below a cap that most world sizes divide evenly, by DeepSpeed's elasticity rule 0.1.
#include "../common/deepspeed.hpp"

namespace pliant::elasticity {
namespace {

struct PolicyV01 : DeepSpeedOptions {
  static void options(sdk::Options<PolicyV01>& table) {
    add_deepspeed_options(table);
    table
        .add("model_parallel_size", static_cast<int64_t PolicyV01::*>(&DeepSpeedOptions::model_parallel_size),
             "Devices per data-parallel rank: always 1 here; v0.2 supports more.")
        .range(1, 1)
        .unit("devices");
    table
        .add("num_gpus_per_node", static_cast<int64_t PolicyV01::*>(&DeepSpeedOptions::num_gpus_per_node),
             "Devices per node; v0.1 ignores it.")
        .at_least(1)
        .unit("devices");
    add_strict_option(table,
                      "Fix two faults of the rule: the batch keeps growing above 720720 times a micro-batch, and a "
                      "config without a valid world size is refused.");
  }

  void start(const sdk::Host& host) {
    check_limits(*this);
    host_ = host;
  }

  [[nodiscard]] sdk::Plan plan(const sdk::PlanRequest& request) const {
    check_world_size(request.world_size);
    const Found found = best_batch({.micro_batches = micro_batch_sizes,
                                    .cap = max_train_batch_size,
                                    .low = min_gpus,
                                    .high = max_gpus,
                                    .prefer_larger = prefer_larger_batch,
                                    .lcm_may_exceed_cap = lcm_may_exceed_max,
                                    .strict = strict});
    if (strict) require_sizes(found, *this);
    if (found.table_ended) host_.warning(table_end_warning(found.batch));
    sdk::Plan made;
    made.global_batch = found.batch;
    made.granule = granule(micro_batch_sizes, found.batch);
    made.devices_per_node = num_gpus_per_node;
    made.min_resize_interval_s = seconds_of(min_time);
    made.world_sizes = as_ranges(found.sizes);
    if (request.world_size > 0) {
      made.micro_batch = micro_batch_at(*this, request.world_size, found.batch, found.sizes);
    } else if (request.want_micro_batch) {
      throw sdk::Failure(PLIANT_FAILED_PRECONDITION,
                         "the micro-batch of v0.1 depends on the world size; give a world size");
    }
    return made;
  }

 private:
  sdk::Host host_;
};

}  // namespace
}  // namespace pliant::elasticity

PLIANT_ELASTICITY_POLICY(pliant::elasticity::PolicyV01, "v0.1", "0.1.0",
                         "The global batch that most world sizes divide evenly (DeepSpeed elasticity 0.1)")
