/* Kind pliant.elasticity_policy/0: which global batch a job uses and which world sizes may share it out. C11,
 * append-only. */
#ifndef PLIANT_ABI_ELASTICITY_POLICY_H
#define PLIANT_ABI_ELASTICITY_POLICY_H

#include "pliant/abi/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_KIND_ELASTICITY_POLICY "pliant.elasticity_policy/0"

enum {
  PLIANT_PLAN_WANT_MICRO_BATCH =
      1 /* fail rather than leave micro_batch 0 when it depends on a world size that is not given */
};

typedef struct pliant_plan_request {
  uint32_t struct_size;
  uint32_t flags;
  int64_t world_size;         /* data-parallel ranks that exist now; 0 = not known */
  pliant_str world_size_text; /* WORLD_SIZE of the environment as found there; data NULL = unset. Only policies that say
                                 so read it */
} pliant_plan_request;

/* Valid world sizes first, first + step, ..., last. 1 <= first <= last; step divides last - first and is at least 1, or
 * 0, which means 1. */
typedef struct pliant_world_range {
  int64_t first;
  int64_t last;
  int64_t step;
} pliant_world_range;

/* Receives the valid world sizes, ascending and disjoint, in as many calls as the policy likes. */
typedef struct pliant_world_sink {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  int32_t (*append)(void* context, const pliant_world_range* ranges, uint64_t count);
} pliant_world_sink;

typedef struct pliant_plan {
  uint32_t struct_size; /* set by the host; a policy that answers PLIANT_OK sets all else */
  uint32_t reserved;
  int64_t global_batch; /* rows of one step, >= 1 */
  int64_t micro_batch;  /* rows that a rank computes at once at request.world_size; 0 = no world size was given, or none
                           fits */
  int64_t granule;      /* rows that are never split; divides global_batch and every micro_batch */
  int64_t model_parallel_size;   /* devices behind one data-parallel rank, >= 1 */
  int64_t devices_per_node;      /* 0 = the policy knows of no nodes */
  int64_t min_resize_interval_s; /* seconds that must pass between two resizes that nothing forces, >= 0 */
  int64_t largest_counted; /* the largest cluster, in ranks, that the choice of the batch counted, where that is more
                              than the last valid world size; else 0 */
} pliant_plan;

typedef struct pliant_elasticity_policy {
  uint32_t struct_size;
  uint32_t reserved;
  /* [control-thread] A function of options and request only: same input, same plan, on every machine. The sizes that go
   * to the sink count data-parallel ranks. Statuses: PLIANT_INCOMPATIBLE_WORLD_SIZE when request.world_size is not
   * valid; PLIANT_INVALID_ARGUMENT, PLIANT_OUT_OF_RANGE, PLIANT_FAILED_PRECONDITION for options that cannot be planned.
   */
  int32_t (*plan)(void* self, const pliant_plan_request* request, pliant_plan* plan, const pliant_world_sink* sizes,
                  pliant_error* error);
} pliant_elasticity_policy;

#ifdef __cplusplus
}
#endif
#endif
