/* Kind pliant.coordinator/0: when sharded parameters are gathered, released and reduced. C11, append-only.
 *
 * A coordinator decides and touches no device. It is given a model as two tables, then what the program does, visit by
 * visit, and answers with actions, which the host carries out in their order. The same visits must get the same actions
 * in every process and on every machine: each rank asks for itself, and gathers meet only where the answers are equal.
 * So no floating point that decides, no clock, no randomness.
 *
 * A parameter is either whole (gathered, or on its way) or not. The host refuses a list that gathers what is whole,
 * waits for or releases what is not, releases what nothing has waited for or what a module that is still entered uses,
 * or enters a module without having gathered and waited for what it uses; it names the coordinator, the parameter and
 * the visit, and the step is not committed. pliant/sdk/coordinator_rules.hpp has all rules as code.
 *
 * A module uses its own and external parameters; one that is PLIANT_MODULE_LEAF those of all modules below it, too.
 *
 * What it learns of a model may be saved and loaded (pliant_plugin::save and load; both NULL: it begins anew). A host
 * saves between two steps and loads after set_model of the same model, before the first pass, maybe in another process,
 * with another world size and other options; nothing is whole then. After it the same visits get the same actions as
 * where it was saved. Every rank of a group is given the same state; where one refuses it all begin anew.
 *
 * When a call fails, or its list is refused, nothing of the list is carried out. The host then gives the pass up, frees
 * what is whole and calls set_model before it goes on. */
#ifndef PLIANT_ABI_COORDINATOR_H
#define PLIANT_ABI_COORDINATOR_H

#include "pliant/abi/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_KIND_COORDINATOR "pliant.coordinator/0"

/* Flags of a parameter. */
enum {
  PLIANT_PARAMETER_FROZEN = 1, /* it has no gradient */
  PLIANT_PARAMETER_PERSISTENT =
      2,                        /* the program would have it whole between its uses; it may be released all the same */
  PLIANT_PARAMETER_EXTERNAL = 4 /* modules that do not own it use it unannounced: released by end_step only */
};

/* A parameter; its number is its place in the table. */
typedef struct pliant_parameter_row {
  uint64_t elements; /* may be 0 */
  uint64_t bytes;    /* that it takes once it is whole: where there is an arena, a multiple of 256 */
  uint32_t flags;    /* PLIANT_PARAMETER_... */
  uint32_t dtype;    /* of the whole parameter: PLIANT_F32, PLIANT_BF16 (accelerator.h) */
  /* That its gradient takes in the arena from the enter in backward of the first module that uses it, of an external
   * one from the first such enter of the pass, until the call after the one that reduces it, or as
   * PLIANT_ACTION_LINGER says; on every rank the same.
   * In one piece: where passes are over several micro-batches the gradients of all that must lie there at once, and
   * what arrives for them. 0: frozen, or there is no arena, or not known. */
  uint64_t gradient_bytes;
  /* And what arrives for it from other ranks, from its reduce to that call; likewise. 0, too, where it lies with it. */
  uint64_t received_bytes;
  const char* name; /* for messages, valid in the call; may be NULL */
} pliant_parameter_row;

enum {
  PLIANT_MODULE_LEAF = 1 /* gathered as one with all below it; modules below it are not visited */
};

/* A module; its number is its place in the table. Module 0 is the root. */
typedef struct pliant_module_row {
  uint32_t flags; /* PLIANT_MODULE_... */
  uint32_t own_count;
  uint32_t external_count;
  uint32_t child_count;
  const uint32_t* own;      /* numbers of parameters, no module has one twice; two modules may share one */
  const uint32_t* external; /* of other modules, used by this one too */
  const uint32_t* children; /* numbers of modules; each module but the root is the child of at most one */
  const char* name;         /* for messages, valid in the call; may be NULL */
} pliant_module_row;

typedef struct pliant_model {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t parameter_count;
  uint64_t parameter_stride; /* bytes from one row to the next */
  const pliant_parameter_row* parameters;
  uint64_t module_count; /* >= 1 */
  uint64_t module_stride;
  const pliant_module_row* modules;
  uint64_t budget; /* bytes that whole parameters may take at once; 0: no limit */
  int32_t world_size;
  /* That LOAD and STORE may name, from 0 on. 0: the host has none and refuses both; a coordinator whose options ask for
   * one refuses the model with PLIANT_UNIMPLEMENTED and names the option. */
  uint32_t tiers;
  uint64_t reduce_flags; /* PLIANT_ACTION_... that REDUCE may have */
} pliant_model;

enum {
  PLIANT_PASS_NO_GRADIENT = 1 /* forward only: evaluation, generation */
};
enum { PLIANT_FORWARD = 1, PLIANT_BACKWARD = 2 };
enum {
  PLIANT_VISIT_RECOMPUTE = 1 /* forward once more, from inside backward */
};

/* A module is entered or left. Visits nest as modules do; in backward the order is the program's. A module may be
 * entered again before it is left, as when it is recomputed; it is left as often. */
typedef struct pliant_visit {
  uint32_t struct_size;
  uint32_t module;
  uint32_t direction; /* PLIANT_FORWARD, PLIANT_BACKWARD */
  uint32_t flags;     /* PLIANT_VISIT_... */
  /* At leave: all parameters whose gradient is complete in this pass and was not reduced yet, ascending. It is complete
   * once modules that use the parameter were left in backward as often as they were entered forward, that of an
   * external parameter when the pass ends. The host reduces at the end of the pass what is left, one after the
   * other in the order of numbers within a budget, after the actions of end_pass. */
  const uint32_t* complete;
  uint64_t complete_count;
} pliant_visit;

/* What an action does with `parameter`. */
enum {
  PLIANT_ACTION_GATHER = 1,     /* begin to make it whole; neighbours of one group are one collective. The gathers of a
                                 * group stand side by side */
  PLIANT_ACTION_WAIT = 2,       /* work of the visit must not begin before it is whole */
  PLIANT_ACTION_RELEASE = 3,    /* its memory is free once the work enqueued so far is done */
  PLIANT_ACTION_REDUCE = 4,     /* its gradient, which is complete, leaves for its owners; groups as above */
  PLIANT_ACTION_LOAD = 5,       /* bring the rank's shard from the tier `place` to the device: pliant_model::tiers */
  PLIANT_ACTION_STORE = 6,      /* and the other way round */
  PLIANT_ACTION_DROP_TRACE = 7, /* says that what was learnt of the order is thrown away; for the log. No parameter */
  PLIANT_ACTION_BOUND_WAITS =
      8 /* block the calling thread until at most `place` earlier waits of visits are unfinished. No parameter */
};
enum {
  PLIANT_ACTION_PREFETCH = 1, /* of a gather: for a later visit */
  /* Of all reduces of a group: what they take in the arena, gradients and what arrives for them, stays there until the
   * next reduce of the pass, which puts nothing there before, or until the end of the pass, and not only until the next
   * call. So the gradients of the next module lie elsewhere, and need not wait for these to be added up. Only where
   * pliant_model::reduce_flags has it. A host that has no arena, or for want of room, may use it sooner. */
  PLIANT_ACTION_LINGER = 2
};
#define PLIANT_NO_PARAMETER UINT32_MAX
/* The host chooses the place in its arena. */
#define PLIANT_ANY_PLACE UINT64_MAX

typedef struct pliant_action {
  uint32_t kind; /* PLIANT_ACTION_... */
  uint32_t parameter;
  uint32_t group; /* of GATHER and REDUCE: neighbours in the list with one number are one collective. Counts in this
                   * list only, and apart for the two */
  uint32_t flags;
  /* of GATHER: byte offset in the arena, a multiple of 256, or PLIANT_ANY_PLACE. The arena has the bytes of the budget;
   * gradients and what is on its way lie in it, too, from its end on. Without a budget there is no arena, and the host
   * chooses. */
  uint64_t place;
} pliant_action;

/* The caller's room for actions. capacity is at least 8 * parameters + 64, which any sensible list fits in; a
 * coordinator that needs more returns PLIANT_RESOURCE_EXHAUSTED. */
typedef struct pliant_action_list {
  uint32_t struct_size; /* set by the host */
  uint32_t reserved;
  uint64_t capacity;
  uint64_t count; /* 0 when the call begins; set by the coordinator */
  pliant_action* actions;
} pliant_action_list;

typedef struct pliant_coordinator {
  uint32_t struct_size;
  uint32_t reserved;
  /* [one-thread] Of this slot and all below: one call at a time, from any thread, as the visits come.
   * A model to decide over: all parameters are shards. Called once before the first pass, and again, between two
   * passes, when the program made its modules anew, or gradients take other room; what was learnt is thrown away then,
   * but the host may give it back with load. The tables are gone when it returns. */
  int32_t (*set_model)(void* self, const pliant_model* model, pliant_error* error);
  /* Between two passes: the module has other parameters now. */
  int32_t (*set_module_parameters)(void* self, uint32_t module, const uint32_t* own, uint32_t own_count,
                                   const uint32_t* external, uint32_t external_count, pliant_error* error);
  /* A pass is one forward over rows and, unless `flags` has PLIANT_PASS_NO_GRADIENT, its backward. How many
   * micro-batches they are is the host's affair: it visits each module once for all of them. */
  int32_t (*begin_pass)(void* self, uint32_t flags, pliant_action_list* list, pliant_error* error);
  int32_t (*enter)(void* self, const pliant_visit* visit, pliant_action_list* list, pliant_error* error);
  int32_t (*leave)(void* self, const pliant_visit* visit, pliant_action_list* list, pliant_error* error);
  int32_t (*end_pass)(void* self, pliant_action_list* list, pliant_error* error);
  /* The parameters are about to change. Everything must be released, and what is on its way waited for first. Also
   * called when a pass was given up. */
  int32_t (*end_step)(void* self, pliant_action_list* list, pliant_error* error);
  /* May be NULL. Between two steps: what gathering each parameter costs, in nanoseconds, agreed by all ranks. */
  int32_t (*set_costs)(void* self, const uint64_t* nanoseconds, uint64_t count, pliant_error* error);
  /* May be NULL. Between two passes: the modules are the same, but the program will not visit them in the order of
   * before. What was learnt of the order is thrown away, what is whole may stay whole. Where it is NULL the host calls
   * end_step and set_model. */
  int32_t (*drop_trace)(void* self, pliant_action_list* list, pliant_error* error);
} pliant_coordinator;

/* Extension of a coordinator: what it counts. Hosts read `trace` as passes begin and end, for the summary of a job; the
 * rest is for comparing it with others. */
#define PLIANT_COORDINATOR_COUNTERS "pliant.coordinator_counters/0"

typedef struct pliant_coordinator_counts {
  uint32_t struct_size; /* set by the host */
  int32_t trace;        /* PLIANT_TRACE_... */
  int64_t whole;        /* elements of parameters that it counts as whole */
  uint64_t visits;      /* entered since the trace began, or in all where there is none */
  uint64_t ahead;       /* parameters that the trace still has in front of it; UINT64_MAX: there is no trace */
  /* Of the pass that ended last: the most bytes of parameters at once that were not whole for want of one piece in the
   * arena, while as many lay idle there in gaps. UINT64_MAX: it gives no places, or there is no arena. */
  uint64_t lost_to_gaps;
} pliant_coordinator_counts;
enum { PLIANT_TRACE_NONE = 0, PLIANT_TRACE_RECORDING = 1, PLIANT_TRACE_COMPLETE = 2, PLIANT_TRACE_INVALID = 3 };

typedef struct pliant_coordinator_counters {
  uint32_t struct_size;
  uint32_t reserved;
  /* [one-thread] */
  int32_t (*read)(void* self, pliant_coordinator_counts* counts, pliant_error* error);
} pliant_coordinator_counters;

#ifdef __cplusplus
}
#endif
#endif
