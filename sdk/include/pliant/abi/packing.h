/* Extension pliant.packing/0 of a batch sampler: what the rows of the current epoch fill of their budget, and a
 * certificate: a number of rows that no packing of the same entries can go below. C11, append-only. */
#ifndef PLIANT_ABI_PACKING_H
#define PLIANT_ABI_PACKING_H

#include "pliant/abi/batch_sampler.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_PACKING "pliant.packing/0"

/* What counts against the budget of a row. */
enum {
  PLIANT_UNIT_TOKENS = 0,
  PLIANT_UNIT_PADDED_TOKENS = 1, /* with the padding to the longest sequence of the row, or to its shape */
  PLIANT_UNIT_LOSS_TOKENS = 2,   /* tokens that have a loss, at least 1 a sequence */
  PLIANT_UNIT_COST = 3           /* tokens, padded where the sampler pads, with the quadratic term of attention */
};

typedef struct pliant_packing_report {
  uint32_t struct_size; /* set by the host */
  uint32_t reserved;
  int64_t budget; /* units that a row can hold; 0 = no budget */
  int32_t unit;   /* PLIANT_UNIT_TOKENS .. PLIANT_UNIT_COST */
  int32_t reserved2;
  uint64_t used; /* units that all rows use; at most budget * rows; 2^64 - 1 when it is more than that */
  /* Lower bound: no packing of the same entries under the same budget and number of sequences has fewer rows; 0 = not
   * known. */
  uint64_t least_rows;
} pliant_packing_report;

typedef struct pliant_packing {
  uint32_t struct_size;
  uint32_t reserved;
  /* [train-thread] Of the current epoch, computed when asked. PLIANT_FAILED_PRECONDITION when there is none. */
  int32_t (*report)(void* self, pliant_packing_report* out, pliant_error* error);
} pliant_packing;

#ifdef __cplusplus
}
#endif
#endif
