// What an elasticity policy answers, held against pliant/abi/elasticity_policy.h. For hosts, which refuse what breaks
// it, and for tests of policies. Every function says in words what is wrong, "" for nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "pliant/abi/elasticity_policy.h"
#include "pliant/sdk/elasticity_policy.hpp"

namespace pliant::sdk {

/// Takes the world sizes of one plan from a policy; a step of 0 becomes 1. One thread.
class WorldSizes {
 public:
  /// Divisors of a 63-bit batch number at most 103680; a policy that sends a hundred times as many ranges does not end.
  static constexpr uint64_t kMostRanges = uint64_t{1} << 24;

  WorldSizes() = default;
  WorldSizes(const WorldSizes&) = delete;
  WorldSizes& operator=(const WorldSizes&) = delete;

  /// Lives as long as this.
  [[nodiscard]] const pliant_world_sink* sink() const noexcept { return &sink_; }
  [[nodiscard]] const std::vector<WorldRange>& ranges() const noexcept { return ranges_; }
  [[nodiscard]] std::vector<WorldRange> take_ranges() noexcept { return std::move(ranges_); }
  /// Why some were not taken.
  [[nodiscard]] std::string fault() const { return fault_; }

 private:
  static int32_t append(void* context, const pliant_world_range* ranges, uint64_t count) noexcept {
    auto& to = *static_cast<WorldSizes*>(context);
    if (count > 0 && ranges == nullptr) {
      to.fault_ = "gave the host a null list of world sizes";
      return PLIANT_INVALID_ARGUMENT;
    }
    if (count > kMostRanges - to.ranges_.size()) {
      to.fault_ = "gave the host more than 16777216 ranges of world sizes";
      return PLIANT_RESOURCE_EXHAUSTED;
    }
    try {
      to.ranges_.reserve(to.ranges_.size() + count);
      for (uint64_t i = 0; i < count; ++i) {
        to.ranges_.push_back({ranges[i].first, ranges[i].last, ranges[i].step == 0 ? 1 : ranges[i].step});
      }
    } catch (...) {
      to.fault_ = "gave the host more world sizes than memory holds";
      return PLIANT_RESOURCE_EXHAUSTED;
    }
    return PLIANT_OK;
  }

  std::vector<WorldRange> ranges_;
  const char* fault_ = "";
  pliant_world_sink sink_{sizeof(pliant_world_sink), 0, this, &append};
};

/// The numbers of a plan that was asked for at `world_size`, 0 for none. Not the granule.
[[nodiscard]] inline std::string plan_number_fault(const pliant_plan& plan, int64_t world_size) {
  const std::string at = world_size > 0 ? " at world size " + std::to_string(world_size) : "";
  if (plan.global_batch < 1) {
    return "returned a global batch of " + std::to_string(plan.global_batch) + at + "; it must be at least 1";
  }
  if (plan.micro_batch < 0 || plan.micro_batch > plan.global_batch) {
    return "returned a micro-batch of " + std::to_string(plan.micro_batch) + at +
           "; it must be from 0 to the global batch, " + std::to_string(plan.global_batch);
  }
  if (plan.model_parallel_size < 1) {
    return "returned a model_parallel_size of " + std::to_string(plan.model_parallel_size) + "; it must be at least 1";
  }
  if (plan.devices_per_node < 0 || plan.min_resize_interval_s < 0) {
    return "returned devices_per_node " + std::to_string(plan.devices_per_node) + " and min_resize_interval_s " +
           std::to_string(plan.min_resize_interval_s) + "; both must be at least 0";
  }
  if (plan.largest_counted < 0) {
    return "returned largest_counted " + std::to_string(plan.largest_counted) + "; it must be at least 0";
  }
  return {};
}

/// The granule of a plan whose other numbers are right.
[[nodiscard]] inline std::string granule_fault(const pliant_plan& plan) {
  if (plan.granule >= 1 && plan.global_batch % plan.granule == 0 && plan.micro_batch % plan.granule == 0) return {};
  return "returned a granule of " + std::to_string(plan.granule) + ", which does not divide both global batch " +
         std::to_string(plan.global_batch) + " and micro-batch " + std::to_string(plan.micro_batch);
}

/// The world sizes of a plan whose numbers and granule are right. `sizes`: ranges with first, last and step.
template <class Ranges>
[[nodiscard]] std::string world_size_fault(const pliant_plan& plan, const Ranges& sizes) {
  const auto text = [](const auto& range) { return std::to_string(range.first) + ".." + std::to_string(range.last); };
  int64_t previous = 0;
  for (const auto& range : sizes) {
    if (range.first < 1 || range.last < range.first) {
      return "returned world sizes " + text(range) + "; a range starts at 1 or more and ends no earlier";
    }
    const int64_t width = range.last - range.first;
    if (range.step < 1 || (width != 0 && width % range.step != 0)) {
      return "returned world sizes " + text(range) + " in steps of " + std::to_string(range.step) +
             "; the step must be at least 1 and divide " + std::to_string(width);
    }
    if (range.first <= previous) {
      return "returned world sizes " + text(range) + " after " + std::to_string(previous) +
             "; ranges must ascend and not overlap";
    }
    previous = range.last;
  }
  if (previous > plan.global_batch / plan.granule) {
    return "returned world size " + std::to_string(previous) + ", but global batch " +
           std::to_string(plan.global_batch) + " has only " + std::to_string(plan.global_batch / plan.granule) +
           " granules of " + std::to_string(plan.granule) + " rows";
  }
  if (previous > std::numeric_limits<int64_t>::max() / plan.model_parallel_size) {
    return "returned world size " + std::to_string(previous) + " with " + std::to_string(plan.model_parallel_size) +
           " devices behind each rank, which do not fit 63 bits";
  }
  return {};
}

/// Whether ranges that world_size_fault found right have `world_size`.
template <class Ranges>
[[nodiscard]] bool has_world_size(const Ranges& sizes, int64_t world_size) {
  const auto range = std::lower_bound(sizes.begin(), sizes.end(), world_size,
                                      [](const auto& one, int64_t size) { return one.last < size; });
  return range != sizes.end() && range->first <= world_size && (world_size - range->first) % range->step == 0;
}

/// The micro-batch of a plan that is right otherwise.
template <class Ranges>
[[nodiscard]] std::string micro_batch_fault(const pliant_plan& plan, const Ranges& sizes, int64_t world_size) {
  if (world_size < 1 || plan.micro_batch != 0 || !has_world_size(sizes, world_size)) return {};
  return "returned no micro-batch at world size " + std::to_string(world_size) + ", which it lists as valid";
}

/// All of a plan. That it lists the world size that was asked for is not held against it here.
template <class Ranges>
[[nodiscard]] std::string plan_fault(const pliant_plan& plan, const Ranges& sizes, int64_t world_size) {
  std::string fault = plan_number_fault(plan, world_size);
  if (fault.empty()) fault = granule_fault(plan);
  if (fault.empty()) fault = world_size_fault(plan, sizes);
  if (fault.empty()) fault = micro_batch_fault(plan, sizes, world_size);
  return fault;
}

}  // namespace pliant::sdk
