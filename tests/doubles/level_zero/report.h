/* What the software driver of Level Zero has seen: asked by tests through the symbol pliant_soft_ze_report. */
#ifndef PLIANT_TESTS_SOFT_ZE_REPORT_H
#define PLIANT_TESTS_SOFT_ZE_REPORT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pliant_soft_ze_counts {
  int64_t contexts, allocations, imports, lists, event_pools, events; /* that live */
  int64_t modules, kernels, build_logs;                               /* that live */
  int64_t appended;                                                   /* commands, ever */
  int64_t launched;                                                   /* kernels, ever */
  int64_t pools_made, events_made;                                    /* ever */
  int64_t pinned;                                                     /* ranges of the program's memory, now */
  int64_t violations;                                                 /* of the rules of Level Zero, ever */
  char first_violation[200];
} pliant_soft_ze_counts;

typedef void (*pliant_soft_ze_report_function)(pliant_soft_ze_counts* counts);

#ifdef __cplusplus
}
#endif
#endif
