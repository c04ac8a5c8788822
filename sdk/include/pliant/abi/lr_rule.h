/* Kind pliant.lr_rule/0: how the learning rate and what goes with it follow batch and progress. C11, append-only.
 *
 * Rules form a chain: [lr] schedule, then use, then `then`. Each link sees the answer of the link before it and changes
 * what it wants. scale() answers as often as the host asks, also for steps that are then dropped, and changes nothing;
 * commit() is called once for every step whose effects became final, in order. So the state of a rule depends on the
 * committed steps alone and is the same on every rank. */
#ifndef PLIANT_ABI_LR_RULE_H
#define PLIANT_ABI_LR_RULE_H

#include "pliant/abi/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_KIND_LR_RULE "pliant.lr_rule/0"

/* Families of optimizers. Bit n of pliant_lr_facts.optimizers stands for number n. */
enum {
  PLIANT_OPTIMIZER_UNKNOWN = 0,
  PLIANT_OPTIMIZER_SGD = 1,
  PLIANT_OPTIMIZER_SGD_MOMENTUM = 2,
  PLIANT_OPTIMIZER_NESTEROV = 3,
  PLIANT_OPTIMIZER_ADAM = 4,
  PLIANT_OPTIMIZER_ADAMW = 5,
  PLIANT_OPTIMIZER_LAMB = 6,
  PLIANT_OPTIMIZER_LARS = 7,
  PLIANT_OPTIMIZER_SIGN = 8, /* Lion, signSGD and their like */
  PLIANT_OPTIMIZER_OTHER = 9
};

/* What a batch is measured in. */
enum {
  PLIANT_BATCH_ROWS = 1, /* packs, where rows are packs */
  PLIANT_BATCH_SEQUENCES = 2,
  PLIANT_BATCH_TOKENS = 3,
  PLIANT_BATCH_LOSS_TOKENS = 4
};

enum {
  PLIANT_LR_WANTS_GRADIENT_NORMS = 1, /* commit() lives on squared gradient norms */
  PLIANT_LR_WANTS_TOTAL = 2           /* scale() needs to know how long the job is */
};

/* A batch in every unit; 0 = not known. */
typedef struct pliant_lr_counts {
  double rows;
  double sequences;
  double tokens;
  double loss_tokens;
} pliant_lr_counts;

/* What a rule says about itself. Pointers live as long as the instance. */
typedef struct pliant_lr_facts {
  uint32_t struct_size; /* set by the host */
  uint32_t flags;       /* PLIANT_LR_WANTS_... */
  uint32_t optimizers;  /* bits of the families that it is valid for; the host refuses the others */
  uint32_t reserved;
  const char* reason; /* why not the others, and what suits them: shown with the refusal. NULL when all are valid */
} pliant_lr_facts;

/* The value that goes through the chain. Every field is finite; every one but scheduled_lr is >= 0; a beta
 * whose base is given stays >= 0. A factor of 1 changes nothing. */
typedef struct pliant_lr_output {
  uint32_t struct_size; /* set by the host, which fills the rest with the answer of the link before */
  uint32_t reserved;
  double lr;              /* the rate to use */
  double scheduled_lr;    /* what the rate would be at the base batch: base_lr as the schedule moved it */
  double lr_factor;       /* what the batch made of it; lr = scheduled_lr * lr_factor but for rounding and bounds */
  double one_minus_beta1; /* factor of 1 - beta1 (SGD: of 1 - momentum): beta1' = 1 - factor * (1 - beta1) */
  double one_minus_beta2; /* factor of 1 - beta2 */
  double epsilon;         /* factor */
  double weight_decay;    /* factor of the coefficient, before it is multiplied with the rate */
  double ema_power;       /* model average: decay' = decay ^ ema_power */
  double momentum_buffer; /* factor of the optimizer's first moment, applied once, before this step */
  double second_moment;   /* factor of its second moment, likewise */
  double progress;        /* what this step adds to progress, in unit */
} pliant_lr_output;

/* Valid for the call only. Every number is finite unless it says otherwise. */
typedef struct pliant_lr_input {
  uint32_t struct_size;
  int32_t optimizer; /* PLIANT_OPTIMIZER_... */
  int32_t unit;      /* PLIANT_BATCH_... that base_batch, batch and progress are in */
  uint32_t reserved;
  double base_lr;        /* the rate that suits base_batch, before any schedule */
  double base_batch;     /* above 0 */
  double batch;          /* this step's batch */
  int64_t step;          /* optimizer updates before this one */
  int64_t total_steps;   /* of the job; 0 = not known */
  double progress;       /* sum of what the committed steps added */
  double total_progress; /* of the job, as far as data tell; 0 = not known */
  double base_beta1;     /* [lr] beta1 (SGD: momentum); NaN = not given. Likewise: */
  double base_beta2;
  double base_epsilon;
  double base_weight_decay;
  double base_ema;
  pliant_lr_counts base_counts;     /* base_batch in every unit */
  pliant_lr_counts counts;          /* batch in every unit */
  const pliant_lr_output* previous; /* of the link before; of the first one: all factors 1, lr = base_lr */
} pliant_lr_input;

/* How a step ended that became final. */
typedef struct pliant_lr_committed {
  uint32_t struct_size;
  uint32_t reserved;
  double small_batch; /* mean size, in unit, of the parts whose gradients were added; 0 = no norms */
  double small_norm;  /* mean of the squared norms of their mean gradients, weighted with their sizes */
  double big_batch;   /* size of the whole, above small_batch */
  double big_norm;    /* squared norm of its mean gradient */
} pliant_lr_committed;

typedef struct pliant_lr_rule {
  uint32_t struct_size;
  uint32_t reserved;
  /* [control-thread] Fills *facts. The answer does not change while the instance lives. */
  int32_t (*describe)(void* self, pliant_lr_facts* facts, pliant_error* error);
  /* [train-thread] Changes in *output what it wants. Changes no state. */
  int32_t (*scale)(void* self, const pliant_lr_input* input, pliant_lr_output* output, pliant_error* error);
  /* [train-thread] The step of `input` is final, with `output` as this rule answered it. The only call, beside load,
   * that may change state; on failure it has changed nothing. */
  int32_t (*commit)(void* self, const pliant_lr_input* input, const pliant_lr_output* output,
                    const pliant_lr_committed* committed, pliant_error* error);
} pliant_lr_rule;

#ifdef __cplusplus
}
#endif
#endif
