/* Extension pliant.optimizer/0 of an accelerator: what optimizers compute on a device. Every result is defined to the
 * bit, so that devices of all kinds, and the shards of any division, give the same. C11, append-only. */
#ifndef PLIANT_ABI_OPTIMIZER_H
#define PLIANT_ABI_OPTIMIZER_H

#include "pliant/abi/accelerator.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_OPTIMIZER "pliant.optimizer/0"

/* Floats that squared_norms_async adds to one number. */
enum { PLIANT_NORM_CHUNK = 1024 };

/* One update of AdamW (Loshchilov and Hutter, 2019). For each element
 *   g = gradient * gradient_scale
 *   m = beta1 * m + (1 - beta1) * g
 *   v = beta2 * v + ((1 - beta2) * g) * g
 *   w = w - ((rate * m) / (sqrt(v) * correction + epsilon) + decay * w)
 * where w is the weight, m the first and v the second moment, and the m and v of the last line are the new ones. All
 * is computed in f32, as the brackets say: each operation, division and root included, is rounded once, to the nearest,
 * ties to even; none is fused with another; subnormal numbers are kept. Which NaN a NaN is, is not defined. */
typedef struct pliant_adamw_update {
  uint32_t struct_size; /* set by the host */
  float gradient_scale; /* such as that of clipping, or of a mean */
  float beta1;
  float beta2;
  float rate;       /* learning rate / (1 - the product of all beta1 so far) */
  float correction; /* 1 / sqrt(1 - the product of all beta2 so far) */
  float epsilon;
  float decay; /* learning rate * weight decay; 0 for weights that do not decay */
} pliant_adamw_update;

typedef struct pliant_optimizer {
  uint32_t struct_size;
  uint32_t reserved;
  /* [any-thread] Updates `count` elements, each by itself: the bits depend on no division into calls. `update` may be
   * gone when it returns; it has all fields up to `decay`. Each array is aligned to 4 bytes and lies in
   * device or pinned memory; no two overlap. */
  int32_t (*adamw_async)(void* self, const pliant_adamw_update* update, float* weights, const float* gradient,
                         float* first_moment, float* second_moment, uint64_t count, pliant_stream* stream,
                         pliant_error* error);
  /* [any-thread] to[i] = the squared norm of the i-th chunk of PLIANT_NORM_CHUNK floats at `from`, the last of which
   * may be short, in f64: lane l of 32 adds the squares of the elements l, l + 32, l + 64 ... of the chunk in this
   * order to 0, then lane l becomes l + (l + 16), for l below 16, then l + (l + 8), l + (l + 4), l + (l + 2), l + (l +
   * 1). Squares are exact in f64; each sum is rounded once. NaN and infinity propagate, so that to[i] is finite exactly
   * where all elements of the chunk are. `from` is aligned to 4 bytes, `to` to 8; both lie in device or pinned memory
   * and do not overlap. PLIANT_UNIMPLEMENTED where the device has no f64. */
  int32_t (*squared_norms_async)(void* self, double* to, const float* from, uint64_t count, pliant_stream* stream,
                                 pliant_error* error);
} pliant_optimizer;

#ifdef __cplusplus
}
#endif
#endif
