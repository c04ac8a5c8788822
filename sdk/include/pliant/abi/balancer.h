/* Kind pliant.balancer/0: which rank computes which block of a global batch. C11, append-only.
 *
 * A block is a run of consecutive rows that a rank computes at once. A balancer decides where blocks are computed;
 * which rows a batch has, their order in the sum and their weight are none of its business. */
#ifndef PLIANT_ABI_BALANCER_H
#define PLIANT_ABI_BALANCER_H

#include "pliant/abi/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_KIND_BALANCER "pliant.balancer/0"

enum {
  PLIANT_BALANCE_COSTLIEST_FIRST =
      1 /* each rank is to compute its costliest block first; without it: in the order of the batch */
};

typedef struct pliant_balance_request {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t world_size;   /* ranks, >= 1; there may be more of them than blocks */
  uint64_t block_count; /* may be 0 */
  const int64_t*
      costs; /* of each block, in the order of the batch: >= 0, in no unit; they add up to INT64_MAX at most */
} pliant_balance_request;

typedef struct pliant_balance {
  uint32_t struct_size; /* set by the host */
  uint32_t flags;       /* 0 when the call begins; PLIANT_BALANCE_... */
  int32_t* ranks;       /* the host's room for block_count ranks, each -1 when the call begins; all are to be set */
} pliant_balance;

typedef struct pliant_balancer {
  uint32_t struct_size;
  uint32_t reserved;
  /* [control-thread] A function of options and request only: same input, same answer, in every process and on every
   * machine. Each rank asks for itself, and the job ends when two answers differ. So no floating point that decides, no
   * clock, no randomness. */
  int32_t (*balance)(void* self, const pliant_balance_request* request, pliant_balance* answer, pliant_error* error);
} pliant_balancer;

#ifdef __cplusplus
}
#endif
#endif
