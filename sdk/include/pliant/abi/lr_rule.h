/* Kind pliant.lr_rule/0: how the learning rate follows the batch. C11, append-only. */
#ifndef PLIANT_ABI_LR_RULE_H
#define PLIANT_ABI_LR_RULE_H

#include "pliant/abi/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_KIND_LR_RULE "pliant.lr_rule/0"

typedef struct pliant_lr_input {
  uint32_t struct_size;
  uint32_t reserved;
  double base_lr;    /* the rate that suits base_batch; finite */
  double base_batch; /* in the unit that [lr] unit names */
  double batch;      /* this step's batch, same unit */
  int64_t step;      /* 0 for the first optimizer update of the job */
} pliant_lr_input;

typedef struct pliant_lr_output {
  uint32_t struct_size; /* set by the host */
  uint32_t reserved;
  double lr; /* finite */
} pliant_lr_output;

typedef struct pliant_lr_rule {
  uint32_t struct_size;
  uint32_t reserved;
  /* [train-thread] */
  int32_t (*scale)(void* self, const pliant_lr_input* input, pliant_lr_output* output, pliant_error* error);
} pliant_lr_rule;

#ifdef __cplusplus
}
#endif
#endif
