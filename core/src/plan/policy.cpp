// The elasticity policy's side of the border: request, sink, and what comes back.
#include "plan/policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "pliant/abi/elasticity_policy.h"
#include "pliant/sdk/calls.hpp"
#include "pliant/sdk/elasticity_rules.hpp"

namespace pliant {
namespace {

/// Makes one of ranges that adjoin.
void join(std::vector<WorldRange>& ranges) {
  size_t kept = 0;
  for (WorldRange range : ranges) {
    if (range.first == range.last) range.step = 1;
    const bool adjoins =
        kept > 0 && range.step == 1 && ranges[kept - 1].step == 1 && ranges[kept - 1].last + 1 == range.first;
    if (adjoins) {
      ranges[kept - 1].last = range.last;
    } else {
      ranges[kept++] = range;
    }
  }
  ranges.resize(kept);
}

}  // namespace

std::string name_of(const plugin::Plugin& plugin) {
  return fmt::format("{} '{}'", plugin.kind().section, plugin.record().name);
}

Result<Plan> ask_policy(const plugin::Instance& policy, const PlanQuestion& question) {
  pliant_plan_request request{};
  request.struct_size = sizeof(request);
  request.flags = question.want_micro_batch ? uint32_t{PLIANT_PLAN_WANT_MICRO_BATCH} : 0;
  request.world_size = question.world_size;
  if (question.world_size_text) {
    request.world_size_text = {question.world_size_text->data(), question.world_size_text->size()};
  }
  pliant_plan made{};
  made.struct_size = sizeof(made);
  sdk::WorldSizes sizes;
  pliant_error error;
  const int32_t status = sdk::call("plan", policy.self(), error, policy.table<pliant_elasticity_policy>().plan,
                                   &request, &made, sizes.sink());
  if (const std::string fault = sizes.fault(); !fault.empty()) {
    return failed(Status::kInternal, fmt::format("{} {}", name_of(policy.plugin()), fault), Origin::kPlugin);
  }
  if (status != PLIANT_OK) return tl::unexpected<Error>(plugin::to_error(policy.plugin(), status, error));
  Plan plan;
  plan.global_batch = made.global_batch;
  plan.micro_batch = made.micro_batch;
  plan.granule = made.granule;
  plan.model_parallel_size = made.model_parallel_size;
  plan.devices_per_node = made.devices_per_node;
  plan.min_resize_interval_s = made.min_resize_interval_s;
  plan.largest_counted = made.largest_counted;
  plan.world_sizes.reserve(sizes.ranges().size());
  for (const auto& [first, last, step] : sizes.ranges()) plan.world_sizes.push_back({first, last, step});
  return plan;
}

Result<Plan> checked_plan(Plan plan, const PlanQuestion& question, const std::string& who) {
  pliant_plan numbers{};
  numbers.struct_size = sizeof(numbers);
  numbers.global_batch = plan.global_batch;
  numbers.micro_batch = plan.micro_batch;
  numbers.granule = plan.granule;
  numbers.model_parallel_size = plan.model_parallel_size;
  numbers.devices_per_node = plan.devices_per_node;
  numbers.min_resize_interval_s = plan.min_resize_interval_s;
  numbers.largest_counted = plan.largest_counted;
  const std::string fault = sdk::plan_fault(numbers, plan.world_sizes, question.world_size);
  if (!fault.empty()) return failed(Status::kInternal, fmt::format("{} {}", who, fault), Origin::kPlugin);
  join(plan.world_sizes);
  if (!plan.world_sizes.empty()) plan.largest_counted = std::max(plan.largest_counted, plan.world_sizes.back().last);
  return plan;
}

}  // namespace pliant
