/* Kind pliant.rendezvous/0: how the agents of a job find each other and agree on generations. C11, append-only.
 *
 * One agent per node. A generation is one incarnation of the worker group; its number rises at every membership change
 * and fences everything older. */
#ifndef PLIANT_ABI_RENDEZVOUS_H
#define PLIANT_ABI_RENDEZVOUS_H

#include "pliant/abi/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_KIND_RENDEZVOUS "pliant.rendezvous/0"

typedef struct pliant_join_request {
  uint32_t struct_size;
  int32_t local_workers; /* workers that this node brings, >= 0 */
  pliant_str run_id;
} pliant_join_request;

typedef struct pliant_generation {
  uint32_t struct_size; /* set by the host; a rendezvous that answers PLIANT_OK sets all else */
  int32_t group_rank;   /* index of this node, 0 .. node_count-1 */
  int32_t node_count;
  int32_t first_rank;  /* rank of this node's first worker */
  int32_t world_size;  /* workers over all nodes */
  int32_t master_port; /* free for the workers' own use at the time of the answer */
  int64_t generation;  /* 1, 2, ... */
  char master_addr[256];
} pliant_generation;

typedef struct pliant_rendezvous {
  uint32_t struct_size;
  uint32_t reserved;
  /* [control-thread] Forms the next generation together with the other nodes that are there. May block; leave ends it.
   */
  int32_t (*join)(void* self, const pliant_join_request* request, pliant_generation* generation, pliant_error* error);
  /* [control-thread] Waits up to timeout_ms for other nodes to come or go. *changed is 1 when a new join is due. */
  int32_t (*watch)(void* self, int32_t timeout_ms, int32_t* changed, pliant_error* error);
  /* [any-thread] Leaves the group and ends a running join or watch with PLIANT_ABORTED. */
  void (*leave)(void* self);
} pliant_rendezvous;

#ifdef __cplusplus
}
#endif
#endif
