// Write an elasticity policy as a class with `Plan plan(const PlanRequest&) const`, then PLIANT_ELASTICITY_POLICY.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pliant/abi/elasticity_policy.h"
#include "pliant/sdk/plugin.hpp"

namespace pliant::sdk {

struct PlanRequest {
  int64_t world_size = 0;            ///< data-parallel ranks that exist now; 0 = not known
  bool want_micro_batch = false;     ///< where no size is given, the SDK refuses a plan with micro_batch 0
  bool has_world_size_text = false;  ///< the environment has WORLD_SIZE
  std::string_view world_size_text;  ///< its text, valid during the call
};

/// Sizes first, first + step, ..., last.
struct WorldRange {
  int64_t first = 0;
  int64_t last = 0;
  int64_t step = 1;  ///< divides last - first
};

struct Plan {
  int64_t global_batch = 0;             ///< rows of one step, >= 1
  int64_t micro_batch = 0;              ///< rows computed at once at the requested world size; 0 = none asked for
  int64_t granule = 1;                  ///< rows never split; divides global_batch
  int64_t model_parallel_size = 1;      ///< devices behind one data-parallel rank
  std::vector<WorldRange> world_sizes;  ///< ascending, disjoint; data-parallel ranks
  int64_t devices_per_node = 0;         ///< 0 = the policy knows of no nodes
  int64_t min_resize_interval_s = 0;    ///< seconds between two resizes that nothing forces
  int64_t largest_counted =
      0;  ///< the largest cluster, in ranks, that the choice of the batch counted; 0 = the last size
};

/// Thrown when the requested world size is not one of the plan's.
class IncompatibleWorldSize : public Failure {
 public:
  explicit IncompatibleWorldSize(const std::string& message) : Failure(PLIANT_INCOMPATIBLE_WORLD_SIZE, message) {}
};

namespace detail {

template <class T>
struct ElasticityAdapter {
  using Instance = Plain<T>;

  static int32_t plan(void* self, const pliant_plan_request* request, pliant_plan* out, const pliant_world_sink* sizes,
                      pliant_error* error) noexcept {
    return guarded(error, [&] {
      const pliant_plan_request known = taken(request, &pliant_plan_request::world_size_text, "pliant_plan_request");
      PlanRequest asked;
      asked.world_size = known.world_size;
      asked.want_micro_batch = (known.flags & PLIANT_PLAN_WANT_MICRO_BATCH) != 0;
      asked.has_world_size_text = known.world_size_text.data != nullptr;
      asked.world_size_text = view(known.world_size_text);
      const Plan made = static_cast<const Instance*>(self)->plugin.plan(asked);
      const bool is_size_given = asked.world_size > 0 || asked.has_world_size_text;
      if (asked.want_micro_batch && !is_size_given && made.micro_batch == 0) {
        throw Failure(PLIANT_FAILED_PRECONDITION, "the micro-batch depends on the world size; give one");
      }
      pliant_plan answer{};
      answer.global_batch = made.global_batch;
      answer.micro_batch = made.micro_batch;
      answer.granule = made.granule;
      answer.model_parallel_size = made.model_parallel_size;
      answer.devices_per_node = made.devices_per_node;
      answer.min_resize_interval_s = made.min_resize_interval_s;
      answer.largest_counted = made.largest_counted;
      fill(out, answer);
      std::vector<pliant_world_range> ranges;
      ranges.reserve(made.world_sizes.size());
      for (const WorldRange& range : made.world_sizes) ranges.push_back({range.first, range.last, range.step});
      if (ranges.empty()) return;
      const pliant_world_sink sink = taken(sizes, &pliant_world_sink::append, "pliant_world_sink");
      const int32_t status = sink.append(sink.context, ranges.data(), ranges.size());
      if (status != PLIANT_OK) throw Failure(status, "the host could not take the world sizes");
    });
  }
  static const void* vtable() noexcept {
    static const pliant_elasticity_policy kTable{sizeof(pliant_elasticity_policy), 0, &plan};
    return &kTable;
  }
};

}  // namespace detail
}  // namespace pliant::sdk

#define PLIANT_ELASTICITY_POLICY(Type, name, version, summary) \
  PLIANT_DETAIL_EXPORT(Type, ElasticityAdapter, PLIANT_KIND_ELASTICITY_POLICY, name, version, summary)
