/* Kind pliant.batch_sampler/0: which sequences form which row, in which order. C11, append-only.
 *
 * A row is what a rank computes as one unit: one sequence, or one pack of sequences. Batch k of an epoch is rows
 * [k*B, min((k+1)*B, row_count)), B = rows_per_batch. The answer never depends on how many ranks exist. Rows have
 * entries; only the last rows of an epoch may have none, as many as fill up its last batch.
 *
 * An entry of a row stands for a whole sequence or for a piece of one: some of its tokens, without a gap. The pieces of
 * a sequence do not overlap and begin at its first token; they may stand in any rows. */
#ifndef PLIANT_ABI_BATCH_SAMPLER_H
#define PLIANT_ABI_BATCH_SAMPLER_H

#include "pliant/abi/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_KIND_BATCH_SAMPLER "pliant.batch_sampler/0"

typedef struct pliant_epoch_request {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t seed;
  int64_t epoch;          /* 0, 1, ... ; random order is keyed by (seed, epoch) */
  int64_t rows_per_batch; /* the global batch, >= 1 */
  uint64_t sequence_count;
  const int32_t* lengths; /* tokens of each sequence; stays valid until the next begin_epoch or destroy */
  uint64_t id_count;
  const int64_t* ids; /* the sequences to use, in this order; NULL = 0 .. sequence_count-1 */
  /* tokens of each sequence that have a loss, 0 .. its length; NULL = all of them; valid as long as lengths */
  const int32_t* loss_tokens;
  /* Rows made beforehand, for samplers with an option of PLIANT_OPTION_ROW_OFFSETS: row i is the sequences
   * row_ids[row_offsets[i] .. row_offsets[i+1]). row_offsets has given_rows + 1 elements, which ascend from 0, no two
   * alike; a sequence is in one row or in none; the host has checked it. NULL: there are none. Valid as long as
   * lengths. */
  uint64_t given_rows;
  const uint64_t* row_offsets;
  const int64_t* row_ids;
} pliant_epoch_request;

typedef struct pliant_epoch {
  uint32_t struct_size; /* set by the host; a sampler that answers PLIANT_OK sets all else */
  uint32_t reserved;
  uint64_t row_count;
  uint64_t sequence_count;  /* sequences in those rows; one that is in pieces counts once */
  uint64_t dropped_count;   /* sequences left out; row sequences + dropped = all that were asked for */
  uint64_t entry_count;     /* entries of those rows; more than sequence_count when sequences are in pieces */
  uint64_t truncated_count; /* of the sequences in rows, those that lose tokens at their end */
} pliant_epoch;

typedef struct pliant_batch_sampler {
  uint32_t struct_size;
  uint32_t reserved;
  /* [train-thread] Plans an epoch and makes it the current one; on failure there is none. */
  int32_t (*begin_epoch)(void* self, const pliant_epoch_request* request, pliant_epoch* epoch, pliant_error* error);
  /* [train-thread] Entries of rows [first_row, first_row + row_count) of the current epoch. offsets has row_count + 1
   * elements, offsets[0] = 0; row i holds the sequences ids[offsets[i] .. offsets[i+1]). With ids == NULL only offsets
   * are written. PLIANT_OUT_OF_RANGE when the rows or id_capacity do not fit. */
  int32_t (*rows)(void* self, uint64_t first_row, uint64_t row_count, uint64_t* offsets, int64_t* ids,
                  uint64_t id_capacity, pliant_error* error);
  /* [train-thread] Dropped sequences [first, first + count) of the current epoch with the index of their reason. */
  int32_t (*dropped)(void* self, uint64_t first, uint64_t count, int64_t* ids, int32_t* reasons, pliant_error* error);
  /* [any-thread] snake_case word for a reason ("too_long"), or NULL past the last one. Reasons count from 0. */
  const char* (*drop_reason)(void* self, int32_t reason);
  /* [train-thread] For the same rows, entry by entry as in `rows`: the piece's first token and its number of tokens; a
   * whole sequence is 0 and its length. Host calls it only when entries are more than sequences or some are truncated.
   * PLIANT_OUT_OF_RANGE when the rows or capacity do not fit. */
  int32_t (*pieces)(void* self, uint64_t first_row, uint64_t row_count, int64_t* first_tokens, int64_t* token_counts,
                    uint64_t capacity, pliant_error* error);
} pliant_batch_sampler;

#ifdef __cplusplus
}
#endif
#endif
