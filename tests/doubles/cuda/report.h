/* What the software CUDA runtime has seen: asked by tests through the symbol pliant_soft_cuda_report. */
#ifndef PLIANT_TESTS_SOFT_CUDA_REPORT_H
#define PLIANT_TESTS_SOFT_CUDA_REPORT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pliant_soft_cuda_counts {
  int64_t allocations, streams, events, pools, libraries; /* that live */
  int64_t enqueued, launches;                             /* commands, and kernels among them, ever */
  int64_t batches;                                        /* of copies, ever */
  int64_t pool_kept_bytes;                                /* given back to pools, and not by them to the device */
  int64_t violations;                                     /* of the rules of CUDA, ever */
  char first_violation[200];
} pliant_soft_cuda_counts;

typedef void (*pliant_soft_cuda_report_function)(pliant_soft_cuda_counts* counts);

#ifdef __cplusplus
}
#endif
#endif
