/* Extension pliant.row_stream/0 of a batch sampler: the rows of an epoch one after the other, with nothing kept of the
 * epoch but what is still open. For data sets whose plan would not fit memory, and to go on in the middle of an epoch
 * at once. C11, append-only.
 *
 * Rows, their order and their entries are those that begin_epoch and rows give for the same request. The state that the
 * plugin's `save` writes holds the position: how far the sequences were read and what is open. After `load` of such a
 * state, `open` with the same seed, epoch and sequences goes on with the row after the last one that was given out. */
#ifndef PLIANT_ABI_ROW_STREAM_H
#define PLIANT_ABI_ROW_STREAM_H

#include "pliant/abi/batch_sampler.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_ROW_STREAM "pliant.row_stream/0"

typedef struct pliant_row_stream {
  uint32_t struct_size;
  uint32_t reserved;
  /* [train-thread] Opens an epoch. request->lengths (and ids, loss_tokens) stay valid until the next open or destroy;
   * they are read once, in order, and may be memory-mapped. PLIANT_FAILED_PRECONDITION when a loaded state belongs to
   * another request; PLIANT_UNIMPLEMENTED when the options need the whole epoch at once. A failure changes nothing. */
  int32_t (*open)(void* self, const pliant_epoch_request* request, pliant_error* error);
  /* [train-thread] The next rows, as many as there are of max_rows; *row_count = 0 only at the end. Arrays as in `rows`
   * and `pieces` of the sampler: offsets has room for max_rows + 1, the others for `capacity` entries.
   * PLIANT_OUT_OF_RANGE when the next row alone has more entries than that; it stays the next one. */
  int32_t (*next)(void* self, uint64_t max_rows, uint64_t capacity, uint64_t* row_count, uint64_t* offsets,
                  int64_t* ids, int64_t* first_tokens, int64_t* token_counts, pliant_error* error);
} pliant_row_stream;

#ifdef __cplusplus
}
#endif
#endif
