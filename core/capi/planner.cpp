// Planners and plans for C.
#include "handles.hpp"
#include "structs.hpp"

struct pliant_planner_t : pliant::capi::Handle<pliant::capi::Tag::kPlanner> {
  static constexpr const char* kName = "planner";
  explicit pliant_planner_t(const pliant::Config& config) : planner(config) {}

  const pliant::Planner planner;
};

pliant_plan_t::pliant_plan_t(pliant::Plan made) : plan(std::move(made)) {
  for (const pliant::WorldRange& range : plan.world_sizes)
    ranges.insert(ranges.end(), {range.first, range.last, range.step});
  warnings = pliant::capi::pointers_to(plan.warnings);
}

int32_t pliant_planner_make(const pliant_config_t* config, pliant_planner_t** planner, pliant_error_t* error) {
  return pliant::capi::hand_out(planner, error,
                                [&] { return std::make_unique<pliant_planner_t>(pliant::capi::given(config).config); });
}

int32_t pliant_planner_free(pliant_planner_t* planner) {
  return pliant::capi::free_any(planner);
}

int32_t pliant_planner_look(const pliant_planner_t* planner, pliant_planner_facts_t* facts, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Planner& known = pliant::capi::given(planner).planner;
    pliant_planner_facts_t made{};
    made.policy = known.policy().c_str();
    made.block = known.block().c_str();
    made.digest = known.digest().c_str();
    pliant::capi::write(facts, made, "facts");
  });
}

int32_t pliant_planner_plan(const pliant_planner_t* planner, int64_t world_size, pliant_plan_t** plan,
                            pliant_error_t* error) {
  return pliant::capi::hand_out(plan, error, [&] {
    const pliant::Planner& known = pliant::capi::given(planner).planner;
    if (world_size < 0) throw pliant::capi::wrong("a world size of " + std::to_string(world_size));
    return std::make_unique<pliant_plan_t>(known.plan(world_size));
  });
}

int32_t pliant_plan_make(const pliant_config_t* config, int64_t world_size, pliant_plan_t** plan,
                         pliant_error_t* error) {
  return pliant::capi::hand_out(plan, error, [&] {
    const pliant::Config& known = pliant::capi::given(config).config;
    if (world_size < 0) throw pliant::capi::wrong("a world size of " + std::to_string(world_size));
    return std::make_unique<pliant_plan_t>(pliant::make_plan(known, world_size));
  });
}

int32_t pliant_check_scheduler(const pliant_config_t* config, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] { pliant::check_scheduler(pliant::capi::given(config).config); });
}

int32_t pliant_plan_free(pliant_plan_t* plan) {
  return pliant::capi::free_any(plan);
}

int32_t pliant_plan_look(const pliant_plan_t* plan, pliant_plan_facts_t* facts, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_plan_t& known = pliant::capi::given(plan);
    pliant_plan_facts_t made{};
    made.global_batch = known.plan.global_batch;
    made.micro_batch = known.plan.micro_batch;
    made.granule = known.plan.granule;
    made.model_parallel_size = known.plan.model_parallel_size;
    made.devices_per_node = known.plan.devices_per_node;
    made.min_resize_interval_s = known.plan.min_resize_interval_s;
    made.valid_sizes = known.plan.count();
    made.range_count = known.plan.world_sizes.size();
    made.ranges = known.ranges.data();
    made.warning_count = known.warnings.size();
    made.warnings = known.warnings.data();
    pliant::capi::write(facts, made, "facts");
  });
}

int32_t pliant_plan_nearest(const pliant_plan_t* plan, int64_t world_size, int64_t* below, int64_t* above,
                            pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Plan& known = pliant::capi::given(plan).plan;
    if (below != nullptr) *below = known.largest_valid(world_size);
    if (above != nullptr) *above = known.smallest_valid(world_size);
  });
}

int32_t pliant_share_of(int64_t rows, int64_t granule, int64_t world_size, int64_t rank, int64_t* first, int64_t* count,
                        pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant::capi::require(first, "first");
    pliant::capi::require(count, "count");
    const pliant::RowRange share = pliant::share_of(rows, granule, world_size, rank);
    *first = share.first;
    *count = share.count;
  });
}
