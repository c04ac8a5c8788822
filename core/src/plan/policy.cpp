// The elasticity policy's side of the border: request, sink, and every check of what comes back.
#include "plan/policy.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>
#include <vector>

#include "pliant/abi/elasticity_policy.h"
#include "pliant/sdk/calls.hpp"

namespace pliant {
namespace {

/// Divisors of a 63-bit batch number at most 103680; a policy that sends a hundred times as many ranges does not end.
constexpr uint64_t kMostRanges = uint64_t{1} << 24;

struct Collected {
  std::vector<WorldRange> ranges;
  const char* objection = nullptr;
};

int32_t append(void* context, const pliant_world_range* ranges, uint64_t count) noexcept {
  auto& collected = *static_cast<Collected*>(context);
  if (count > 0 && ranges == nullptr) {
    collected.objection = "gave the host a null list of world sizes";
    return PLIANT_INVALID_ARGUMENT;
  }
  if (count > kMostRanges - collected.ranges.size()) {
    collected.objection = "gave the host more than 16777216 ranges of world sizes";
    return PLIANT_RESOURCE_EXHAUSTED;
  }
  try {
    collected.ranges.reserve(collected.ranges.size() + count);
    for (uint64_t i = 0; i < count; ++i) {
      const int64_t step = ranges[i].step == 0 ? 1 : ranges[i].step;
      collected.ranges.push_back({ranges[i].first, ranges[i].last, step});
    }
  } catch (...) {
    collected.objection = "gave the host more world sizes than memory holds";
    return PLIANT_RESOURCE_EXHAUSTED;
  }
  return PLIANT_OK;
}

std::string at_size(int64_t world_size) {
  return world_size > 0 ? fmt::format(" at world size {}", world_size) : std::string{};
}

/// What is wrong with the numbers of `plan`, or "".
std::string number_fault(const Plan& plan, const PlanQuestion& question) {
  if (plan.global_batch < 1) {
    return fmt::format("returned a global batch of {}{}; it must be at least 1", plan.global_batch,
                       at_size(question.world_size));
  }
  if (plan.micro_batch < 0 || plan.micro_batch > plan.global_batch) {
    return fmt::format("returned a micro-batch of {}{}; it must be from 0 to the global batch, {}", plan.micro_batch,
                       at_size(question.world_size), plan.global_batch);
  }
  if (plan.granule < 1 || plan.global_batch % plan.granule != 0 || plan.micro_batch % plan.granule != 0) {
    return fmt::format("returned a granule of {}, which does not divide both global batch {} and micro-batch {}",
                       plan.granule, plan.global_batch, plan.micro_batch);
  }
  if (plan.model_parallel_size < 1) {
    return fmt::format("returned a model_parallel_size of {}; it must be at least 1", plan.model_parallel_size);
  }
  if (plan.devices_per_node < 0 || plan.min_resize_interval_s < 0) {
    return fmt::format("returned devices_per_node {} and min_resize_interval_s {}; both must be at least 0",
                       plan.devices_per_node, plan.min_resize_interval_s);
  }
  return {};
}

std::string range_fault(const Plan& plan) {
  int64_t previous = 0;
  for (const WorldRange& range : plan.world_sizes) {
    if (range.first < 1 || range.last < range.first) {
      return fmt::format("returned world sizes {}..{}; a range must start at 1 or more and not end before its start",
                         range.first, range.last);
    }
    if (range.step < 1 || (range.last != range.first && (range.last - range.first) % range.step != 0)) {
      return fmt::format("returned world sizes {}..{} in steps of {}; the step must be at least 1 and divide {}",
                         range.first, range.last, range.step, range.last - range.first);
    }
    if (range.first <= previous) {
      return fmt::format("returned world sizes {}..{} after {}; ranges must ascend and not overlap", range.first,
                         range.last, previous);
    }
    previous = range.last;
  }
  if (previous > plan.global_batch / plan.granule) {
    return fmt::format("returned world size {}, but global batch {} has only {} granules of {} rows", previous,
                       plan.global_batch, plan.global_batch / plan.granule, plan.granule);
  }
  if (previous > std::numeric_limits<int64_t>::max() / plan.model_parallel_size) {
    return fmt::format("returned world size {} with {} devices per rank, which do not fit 63 bits", previous,
                       plan.model_parallel_size);
  }
  return {};
}

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
  Collected collected;
  const pliant_world_sink sink{sizeof(pliant_world_sink), 0, &collected, &append};
  pliant_error error;
  const int32_t status =
      sdk::call("plan", policy.self(), error, policy.table<pliant_elasticity_policy>().plan, &request, &made, &sink);
  if (collected.objection != nullptr) {
    return failed(Status::kInternal, fmt::format("{} {}", name_of(policy.plugin()), collected.objection),
                  ExitCode::kPlugin);
  }
  if (status != PLIANT_OK) return tl::unexpected<Error>(plugin::to_error(policy.plugin(), status, error));
  Plan plan;
  plan.global_batch = made.global_batch;
  plan.micro_batch = made.micro_batch;
  plan.granule = made.granule;
  plan.model_parallel_size = made.model_parallel_size;
  plan.devices_per_node = made.devices_per_node;
  plan.min_resize_interval_s = made.min_resize_interval_s;
  plan.world_sizes = std::move(collected.ranges);
  return plan;
}

Result<Plan> checked_plan(Plan plan, const PlanQuestion& question, const std::string& who) {
  std::string fault = number_fault(plan, question);
  if (fault.empty()) fault = range_fault(plan);
  if (!fault.empty()) return failed(Status::kInternal, fmt::format("{} {}", who, fault), ExitCode::kPlugin);
  join(plan.world_sizes);
  if (question.world_size > 0 && plan.valid(question.world_size) && plan.micro_batch == 0) {
    return failed(
        Status::kInternal,
        fmt::format("{} returned no micro-batch at world size {}, which it lists as valid", who, question.world_size),
        ExitCode::kPlugin);
  }
  return plan;
}

}  // namespace pliant
