/* Pliant for C, and for whatever calls C: config, plan, batches, micro-batches, shares and learning rates of an elastic
 * job. C11; needs nothing beside it. The library is libpliant (pkg-config pliant; find_package(pliant COMPONENTS c)).
 *
 * Status. A call returns PLIANT_OK or why not. It then fills the caller's pliant_error_t, which may be NULL, and has
 * changed nothing unless it says so. The whole text, such as all findings of a config, is pliant_last_message().
 * Nothing is printed, no exception leaves the library, and nothing ends the process.
 *
 * Handles. A pointer to a struct that is not defined here. The caller frees each with the function of its kind, in any
 * order: what a handle was made of may be freed before it. NULL, a handle of another kind and one whose memory does not
 * begin like one are refused; the free functions take NULL. A handle that was freed is not to be used.
 *
 * Arrays and texts. `const T*` in an answer is borrowed: it stays as it is until the call that its comment names. What
 * the caller brings has been read when the call returns, unless its comment says for how long it is borrowed. `T* to`
 * with `room` is filled by the call. Texts are UTF-8; those without a size end with a NUL.
 *
 * Structs that may grow begin with struct_size, which the caller sets, best by PLIANT_INIT. A library that knows more
 * fields takes those that are missing for 0 or NULL, and leaves them out of an answer; one that knows fewer refuses
 * what is set of the fields that it does not know, and leaves those of an answer as they are. 0 and NULL stand for the
 * default.
 *
 * Threads. Each function says in one word who may call it:
 *   [any]     any thread at any time
 *   [serial]  any thread, one call on a handle at a time; one that comes while another is under way is refused with
 *             PLIANT_FAILED_PRECONDITION
 *   [maker]   the thread that made the handle; another one is refused with PLIANT_FAILED_PRECONDITION
 * Freeing a handle while a call on it is under way is refused where the function of its kind is [serial] or [maker].
 *
 * Until release 1.0 a minor version may break, and says so in CHANGELOG; functions and fields are appended. */
#ifndef PLIANT_H
#define PLIANT_H

#include <stddef.h>
#include <stdint.h>

#define PLIANT_VERSION_MAJOR 0
#define PLIANT_VERSION_MINOR 1
#define PLIANT_VERSION_PATCH 0
/* Of this header. */
#define PLIANT_VERSION (PLIANT_VERSION_MAJOR * 1000000 + PLIANT_VERSION_MINOR * 1000 + PLIANT_VERSION_PATCH)

#if defined(__GNUC__)
#define PLIANT_API __attribute__((visibility("default")))
#else
#define PLIANT_API
#endif

/* What a struct begins with: pliant_layout_t layout = PLIANT_INIT(pliant_layout_t); */
#ifdef __cplusplus
#define PLIANT_INIT(type)                                          \
  ([] {                                                            \
    type pliant_made{};                                            \
    pliant_made.struct_size = static_cast<uint32_t>(sizeof(type)); \
    return pliant_made;                                            \
  }())
#else
#define PLIANT_INIT(type) \
  { .struct_size = (uint32_t)sizeof(type) }
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The same codes, under the same names, as in the headers for plugins (pliant/abi/base.h). */
#ifndef PLIANT_STATUS_CODES
#define PLIANT_STATUS_CODES
enum {
  PLIANT_OK = 0,
  PLIANT_INVALID_ARGUMENT = 1, /* an option or argument is wrong by itself */
  PLIANT_OUT_OF_RANGE = 2,     /* a value is outside what the others allow */
  PLIANT_NOT_FOUND = 3,
  PLIANT_FAILED_PRECONDITION = 4, /* the call is right, the situation is not */
  PLIANT_RESOURCE_EXHAUSTED = 5,  /* no memory, no disk */
  PLIANT_UNIMPLEMENTED = 6,
  PLIANT_INTERNAL = 7, /* Pliant or a plugin broke its contract */
  PLIANT_ABORTED = 8,
  PLIANT_PEER_LOST = 9,
  PLIANT_DATA_LOSS = 10, /* saved state is truncated or damaged */
  PLIANT_INCOMPATIBLE_WORLD_SIZE = 11,
  PLIANT_DEADLINE_EXCEEDED = 12
};
#endif

/* Owned by the caller, who sets struct_size; written only when a call returns another status than PLIANT_OK. */
typedef struct pliant_error_t {
  uint32_t struct_size;
  int32_t status;
  int32_t exit_code; /* that the process should end with if it ends for that: 1 failed, 2 usage or config, 3 plugin,
                        75 no valid world size */
  int32_t rank;      /* that it is about; -1: none, or it is not known. Likewise: */
  int32_t device;
  int32_t reserved;
  uint64_t message_bytes; /* of the whole text, without its NUL */
  char message[480];      /* its beginning, ended by a NUL: all of it, or whole characters */
} pliant_error_t;

/* PLIANT_OK where this library serves programs that were compiled with a header of version `header`, PLIANT_VERSION:
 * it is not older, and of the same major version. Call it first. [any] */
PLIANT_API int32_t pliant_check_version(uint32_t header);
/* Of the library, "0.1.0". [any] */
PLIANT_API const char* pliant_version(void);
/* The whole text of the last call of this thread that failed; empty before one did. Borrowed until the next one of this
 * thread that fails. `bytes` may be NULL. [any] */
PLIANT_API const char* pliant_last_message(uint64_t* bytes);

enum { PLIANT_LEVEL_DEBUG = 0, PLIANT_LEVEL_INFO = 1, PLIANT_LEVEL_WARNING = 2, PLIANT_LEVEL_ERROR = 3 };
/* Log lines of the library and its plugins from `least` on go to `sink` from now on; NULL: nowhere, as before the first
 * call. The calls come from any thread, one after the other; a sink must not call Pliant. `context` is handed to it,
 * and is in use until another sink is set. [any] */
PLIANT_API int32_t pliant_set_log_sink(void (*sink)(void* context, int32_t level, const char* logger, const char* line),
                                       void* context, int32_t least, pliant_error_t* error);

/* ---- Config: a pliant.toml that was read and checked, with the plugins that it names. ---- */

typedef struct pliant_config_t pliant_config_t;

enum { PLIANT_CONFIG_NO_ENVIRONMENT = 1 /* PLIANT__A__B and PLIANT_PLUGIN_PATH are not read */ };

typedef struct pliant_config_options_t {
  uint32_t struct_size;
  uint32_t flags;
  const char* needs;       /* sections whose plugins will be asked, with spaces between: "elasticity sampler lr" */
  const char* const* sets; /* "run.workers=2": dotted key, TOML value (a bare word counts as text) */
  uint64_t set_count;
  const char* const* plugin_dirs; /* searched before those of [plugins] dirs */
  uint64_t plugin_dir_count;
  const char* name; /* what messages call a config that is no file; NULL: "pliant.toml" */
} pliant_config_options_t;

/* `options` may be NULL. PLIANT_INVALID_ARGUMENT, exit code 2, with all findings, a line `file:line:column: error: ...`
 * each; PLIANT_NOT_FOUND for a missing file; exit code 3 where a plugin that is named is missing or refused. [any] */
PLIANT_API int32_t pliant_config_open(const char* file, const pliant_config_options_t* options,
                                      pliant_config_t** config, pliant_error_t* error);
/* The same of a text. Paths in it count from the working directory. [any] */
PLIANT_API int32_t pliant_config_parse(const char* toml, uint64_t bytes, const pliant_config_options_t* options,
                                       pliant_config_t** config, pliant_error_t* error);
PLIANT_API int32_t pliant_config_free(pliant_config_t* config); /* [any] */

/* What a loop reads of [run]. */
typedef struct pliant_run_options_t {
  uint32_t struct_size;
  int32_t deterministic; /* 0 or 1 */
  int64_t seed;
  int64_t workers;
  int64_t epochs;
  int64_t max_steps;      /* 0: after the last epoch */
  int64_t snapshot_every; /* steps; 0: at the end only */
} pliant_run_options_t;
PLIANT_API int32_t pliant_config_run(const pliant_config_t* config, pliant_run_options_t* run,
                                     pliant_error_t* error); /* [any] */

/* [app] `key`, or `otherwise` where it is not set; a value of another type is refused with its position. Texts are
 * borrowed until pliant_config_free. [any] */
PLIANT_API int32_t pliant_config_app_int(const pliant_config_t* config, const char* key, int64_t otherwise,
                                         int64_t* value, pliant_error_t* error);
PLIANT_API int32_t pliant_config_app_float(const pliant_config_t* config, const char* key, double otherwise,
                                           double* value, pliant_error_t* error);
PLIANT_API int32_t pliant_config_app_bool(const pliant_config_t* config, const char* key, int32_t otherwise,
                                          int32_t* value, pliant_error_t* error);
PLIANT_API int32_t pliant_config_app_text(const pliant_config_t* config, const char* key, const char* otherwise,
                                          const char** value, pliant_error_t* error);
/* Refuses, with its position, every key of [app] that is none of these. [any] */
PLIANT_API int32_t pliant_config_check_app(const pliant_config_t* config, const char* const* keys, uint64_t count,
                                           pliant_error_t* error);
/* The effective config as one TOML document that opens anywhere to the same config. Borrowed until
 * pliant_config_free. [any] */
PLIANT_API int32_t pliant_config_resolved(const pliant_config_t* config, const char** toml, uint64_t* bytes,
                                          pliant_error_t* error);

/* ---- Plan: the global batch of a job and the world sizes that may share it out. ---- */

typedef struct pliant_planner_t pliant_planner_t;
typedef struct pliant_plan_t pliant_plan_t;

/* `config` was opened with the need "elasticity". [any] */
PLIANT_API int32_t pliant_planner_make(const pliant_config_t* config, pliant_planner_t** planner,
                                       pliant_error_t* error);
PLIANT_API int32_t pliant_planner_free(pliant_planner_t* planner); /* [any] */

/* Texts are borrowed until pliant_planner_free. */
typedef struct pliant_planner_facts_t {
  uint32_t struct_size;
  uint32_t reserved;
  const char* policy; /* "exact" */
  const char* block;  /* policy, version and every option as one line of JSON */
  const char* digest; /* of `block`, 16 hex digits: equal digests, equal plans */
} pliant_planner_facts_t;
PLIANT_API int32_t pliant_planner_look(const pliant_planner_t* planner, pliant_planner_facts_t* facts,
                                       pliant_error_t* error); /* [any] */

/* The plan, with the micro-batch at `world_size` data-parallel ranks; 0: at none in particular.
 * PLIANT_INCOMPATIBLE_WORLD_SIZE names the nearest valid ones. [any] */
PLIANT_API int32_t pliant_planner_plan(const pliant_planner_t* planner, int64_t world_size, pliant_plan_t** plan,
                                       pliant_error_t* error);
PLIANT_API int32_t pliant_plan_free(pliant_plan_t* plan); /* [any] */

/* Arrays and texts are borrowed until pliant_plan_free. */
typedef struct pliant_plan_facts_t {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t global_batch; /* rows of one step */
  int64_t micro_batch;  /* rows computed at once at the world size asked for; 0: none was */
  int64_t granule;      /* rows that are never split; divides both */
  int64_t model_parallel_size;
  int64_t devices_per_node;      /* 0: the policy knows of no nodes */
  int64_t min_resize_interval_s; /* between two resizes that nothing forces */
  int64_t valid_sizes;           /* how many world sizes are valid */
  uint64_t range_count;
  const int64_t* ranges; /* first, last, step of each range of valid sizes: first, first + step, ..., last */
  uint64_t warning_count;
  const char* const* warnings; /* what the policy says against its own answer */
} pliant_plan_facts_t;
PLIANT_API int32_t pliant_plan_look(const pliant_plan_t* plan, pliant_plan_facts_t* facts,
                                    pliant_error_t* error); /* [any] */
/* The largest valid size up to `world_size` and the smallest from it on, each 0 where there is none; both `world_size`
 * where that is valid. `below` and `above` may be NULL. [any] */
PLIANT_API int32_t pliant_plan_nearest(const pliant_plan_t* plan, int64_t world_size, int64_t* below, int64_t* above,
                                       pliant_error_t* error);
/* Rows of `rank` when `world_size` ranks share `rows` rows: contiguous, whole granules but at the end. [any] */
PLIANT_API int32_t pliant_share_of(int64_t rows, int64_t granule, int64_t world_size, int64_t rank, int64_t* first,
                                   int64_t* count, pliant_error_t* error);

/* ---- Data set: the lengths of all sequences. ---- */

typedef struct pliant_dataset_t pliant_dataset_t;

typedef struct pliant_lengths_t {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t count;             /* sequences */
  const int32_t* lengths;     /* tokens of each, >= 1 */
  const int32_t* loss_tokens; /* of each, those that have a loss; NULL: all */
  uint64_t content;           /* digest of what the sequences hold, where there is one; else 0 */
  const char* source;         /* what messages call it; NULL: "the data set" */
  /* NULL: the arrays are copied. Else they are borrowed, and not changed, until `release` is called with `context`, by
   * any thread, once, when the data set and everything that was made of it was freed; not where the call fails. */
  void (*release)(void* context);
  void* context;
} pliant_lengths_t;
/* O(1), or O(count) where the arrays are copied. Lengths are checked by pliant_batches_make. [any] */
PLIANT_API int32_t pliant_dataset_make(const pliant_lengths_t* lengths, pliant_dataset_t** dataset,
                                       pliant_error_t* error);
/* The data set that [data] of the config names. [any] */
PLIANT_API int32_t pliant_dataset_load(const pliant_config_t* config, pliant_dataset_t** dataset,
                                       pliant_error_t* error);
PLIANT_API int32_t pliant_dataset_free(pliant_dataset_t* dataset); /* [any] */
/* The fields but `release` and `context`; arrays are borrowed until pliant_dataset_free. [any] */
PLIANT_API int32_t pliant_dataset_look(const pliant_dataset_t* dataset, pliant_lengths_t* lengths,
                                       pliant_error_t* error);

/* ---- Batches: the one global list of rows of each epoch, the same at every world size. ---- */

typedef struct pliant_batches_t pliant_batches_t;
typedef struct pliant_batch_t pliant_batch_t;

/* Size of a batch in every unit. */
typedef struct pliant_batch_size_t {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t rows;
  int64_t sequences;
  int64_t tokens;
  int64_t loss_tokens;
  int64_t padding_rows; /* of `rows`, without sequences */
} pliant_batch_size_t;

/* `config` was opened with the need "sampler". Plans epoch 0: O(sequences). Refuses an empty data set, lengths below 1
 * and what the sampler refuses (exit code 2); exit code 3 where the sampler breaks its contract. [any] */
PLIANT_API int32_t pliant_batches_make(const pliant_config_t* config, const pliant_plan_t* plan,
                                       const pliant_dataset_t* dataset, pliant_batches_t** batches,
                                       pliant_error_t* error);
/* The same where pliant_batches_save left off: plans the epoch that it is in, by the first call that needs it, and none
 * of those before. Refuses what pliant_batches_load refuses. [any] */
PLIANT_API int32_t pliant_batches_open(const pliant_config_t* config, const pliant_plan_t* plan,
                                       const pliant_dataset_t* dataset, const char* saved, uint64_t bytes,
                                       pliant_batches_t** batches, pliant_error_t* error);
PLIANT_API int32_t pliant_batches_free(pliant_batches_t* batches); /* [serial] */

/* The next batch of the job; *batch is NULL at its end. [serial] */
PLIANT_API int32_t pliant_batches_next(pliant_batches_t* batches, pliant_batch_t** batch, pliant_error_t* error);
/* The batch of job step `step`, from 0; the one that next gives stays the same. Another epoch than that of the last
 * call is planned: O(sequences). [serial] */
PLIANT_API int32_t pliant_batches_at_step(pliant_batches_t* batches, int64_t step, pliant_batch_t** batch,
                                          pliant_error_t* error);
/* Batch `index` of `epoch`; likewise. [serial] */
PLIANT_API int32_t pliant_batches_batch(pliant_batches_t* batches, int64_t epoch, int64_t index, pliant_batch_t** batch,
                                        pliant_error_t* error);

typedef struct pliant_epoch_summary_t {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t rows;
  int64_t padding_rows;
  int64_t batches;
  int64_t sequences;
  int64_t tokens;
  int64_t loss_tokens;
  int64_t longest_row;    /* tokens */
  int64_t truncated;      /* of `sequences` */
  int64_t tokens_cut;     /* that they lose */
  int64_t dropped;        /* sequences; with `sequences` all of the data set */
  int64_t mean_rows;      /* of a batch, rounded down, as the rest: what pliant_learning_rate_make wants */
  int64_t mean_sequences; /* of a batch */
  int64_t mean_tokens;
  int64_t mean_loss_tokens;
} pliant_epoch_summary_t;
PLIANT_API int32_t pliant_batches_epoch(pliant_batches_t* batches, int64_t epoch, pliant_epoch_summary_t* summary,
                                        pliant_error_t* error); /* [serial] */
/* Ids of the sequences that `epoch` leaves out, ascending. *count is their number; PLIANT_OUT_OF_RANGE, and nothing is
 * written, where `room` is smaller. `to` NULL asks for the number alone. [serial] */
PLIANT_API int32_t pliant_batches_dropped(pliant_batches_t* batches, int64_t epoch, int64_t* to, uint64_t room,
                                          uint64_t* count, pliant_error_t* error);

typedef struct pliant_job_facts_t {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t next_step;      /* whose batch pliant_batches_next gives, from 0 */
  int64_t expected_steps; /* of the job: exact once every epoch was planned, or where max_steps ends it sooner */
  uint64_t fingerprint;   /* of all that decides the batches */
} pliant_job_facts_t;
PLIANT_API int32_t pliant_batches_look(pliant_batches_t* batches, pliant_job_facts_t* facts,
                                       pliant_error_t* error); /* [serial] */
/* How long the job is, for pliant_learning_rate_set_job_length: plans every epoch that counts, up to 64. [serial] */
PLIANT_API int32_t pliant_batches_job_length(pliant_batches_t* batches, int64_t* steps, pliant_batch_size_t* all,
                                             pliant_error_t* error);
/* Where next is, a few hundred bytes, the same on every rank; may be loaded at any world size. `room` as for
 * pliant_batches_dropped. [serial] */
PLIANT_API int32_t pliant_batches_save(pliant_batches_t* batches, char* to, uint64_t room, uint64_t* bytes,
                                       pliant_error_t* error);
/* Goes on where `saved` was saved. PLIANT_DATA_LOSS for other bytes, PLIANT_FAILED_PRECONDITION where data set,
 * sampler, options, seed or global batch are not the same, saying which. [serial] */
PLIANT_API int32_t pliant_batches_load(pliant_batches_t* batches, const char* saved, uint64_t bytes,
                                       pliant_error_t* error);

/* What a batch holds. Row i holds entries offsets[i] .. offsets[i + 1] - 1. Arrays are borrowed until
 * pliant_batch_free. */
typedef struct pliant_batch_view_t {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t epoch;
  int64_t index; /* within the epoch */
  int64_t rows;
  int64_t padding_rows; /* of `rows`: the last ones, without sequences */
  int64_t sequences;    /* one in pieces counts in the batch of its last piece */
  int64_t tokens;
  int64_t loss_tokens;
  int64_t longest_entry; /* tokens */
  uint64_t digest;       /* of the ids, whatever their order */
  uint64_t entry_count;
  const uint64_t* offsets; /* rows + 1 of them */
  const int64_t* ids;      /* of sequences, one for each entry */
  /* Of each entry the tokens of its sequence that it stands for, and 1 where no later one comes. NULL: all are whole.
   */
  const int64_t* first_tokens;
  const int64_t* token_counts;
  const uint8_t* is_last;
} pliant_batch_view_t;
PLIANT_API int32_t pliant_batch_look(const pliant_batch_t* batch, pliant_batch_view_t* view,
                                     pliant_error_t* error); /* [any] */
PLIANT_API int32_t pliant_batch_size(const pliant_batch_t* batch, pliant_batch_size_t* size,
                                     pliant_error_t* error); /* [any] */
PLIANT_API int32_t pliant_batch_free(pliant_batch_t* batch); /* [any] */

/* ---- Micro-batches: the rows that a rank computes at once, and the length that each line of its tensor is padded to.
 * ---- */

typedef struct pliant_micro_batches_t pliant_micro_batches_t;

enum { PLIANT_LINE_SEQUENCE = 0 /* an entry of a row */, PLIANT_LINE_ROW = 1 /* the entries of a row in turn */ };
enum {
  PLIANT_PAD_TO_MICRO_BATCH = 0, /* the longest line of the micro-batch */
  PLIANT_PAD_TO_NOTHING = 1,     /* every line keeps its own length */
  PLIANT_PAD_TO_BATCH = 2        /* the longest line of the global batch: the same on every rank */
};
enum {
  PLIANT_LAYOUT_INTERLEAVED = 1, /* a rank has the rows rank, rank + world_size, ...; else ranges in rank order */
  PLIANT_LAYOUT_EVEN = 2,        /* refuses rows of which some rank would get more than another */
  PLIANT_LAYOUT_ONE_SHAPE = 4 /* all ranks get equally many micro-batches of one shape: filled up with empty lines and
                                 empty micro-batches. Takes the place of pad_to */
};

typedef struct pliant_layout_t {
  uint32_t struct_size;
  uint32_t flags;      /* PLIANT_LAYOUT_... */
  int64_t world_size;  /* 0: 1. Likewise: */
  int64_t micro_batch; /* rows computed at once */
  int64_t granule;     /* of ranges in rank order */
  int64_t multiple;    /* padded lengths are rounded up to a multiple of it */
  int32_t line;        /* PLIANT_LINE_... */
  int32_t pad_to;      /* PLIANT_PAD_TO_... */
} pliant_layout_t;

/* The micro-batches of `rank`, in order: those of all ranks hold each row once. `batches` hold the rows, counted
 * through, of `count` batches that follow each other; a micro-batch may hold rows of two. [any] */
PLIANT_API int32_t pliant_micro_batches_make(const pliant_batch_t* const* batches, uint64_t count,
                                             const pliant_layout_t* layout, int64_t rank,
                                             pliant_micro_batches_t** micro_batches, pliant_error_t* error);
/* Rows [first, first + rows) of a batch as one micro-batch: of `layout` line, pad_to and multiple count. [any] */
PLIANT_API int32_t pliant_micro_batches_of_rows(const pliant_batch_t* batch, int64_t first, int64_t rows,
                                                const pliant_layout_t* layout, pliant_micro_batches_t** micro_batches,
                                                pliant_error_t* error);
PLIANT_API int32_t pliant_micro_batches_free(pliant_micro_batches_t* micro_batches); /* [any] */

/* Micro-batch m has rows row_offsets[m] .. row_offsets[m + 1] - 1, and so on: offsets have count + 1 elements. Arrays
 * are borrowed until pliant_micro_batches_free. */
typedef struct pliant_micro_batches_view_t {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t count;
  const uint64_t* row_offsets;
  const int64_t* rows; /* their positions in the batch, ascending */
  const uint64_t* entry_offsets;
  const int64_t* ids;
  const int64_t* first_tokens; /* of each entry, as in pliant_batch_view_t */
  const int64_t* token_counts;
  const uint8_t* is_last;
  const uint64_t* line_offsets;
  const int64_t* lengths;     /* of each line after padding: those with content, then empty ones */
  const int64_t* empty_lines; /* of each micro-batch: its last lines, which must have no part in the loss */
  const int64_t* tokens;      /* of each micro-batch before padding */
} pliant_micro_batches_view_t;
PLIANT_API int32_t pliant_micro_batches_look(const pliant_micro_batches_t* micro_batches,
                                             pliant_micro_batches_view_t* view, pliant_error_t* error); /* [any] */

/* ---- Balancer: which rank computes which rows of a batch, so that ranks wait little for each other. ---- */

typedef struct pliant_balancer_t pliant_balancer_t;
typedef struct pliant_assignment_t pliant_assignment_t;

enum {
  PLIANT_SHARING_DETERMINISTIC = 1 /* granule by granule */,
  PLIANT_SHARING_IN_TURN = 2 /* dealt round by round */
};

typedef struct pliant_sharing_t {
  uint32_t struct_size;
  uint32_t flags;      /* PLIANT_SHARING_... */
  int64_t world_size;  /* 0: 1. Likewise: */
  int64_t micro_batch; /* rows that a rank computes at once */
  int64_t granule;     /* rows that are never split; divides micro_batch */
} pliant_sharing_t;

/* `config` was opened with the need "balancer". [any] */
PLIANT_API int32_t pliant_balancer_make(const pliant_config_t* config, pliant_balancer_t** balancer,
                                        pliant_error_t* error);
PLIANT_API int32_t pliant_balancer_free(pliant_balancer_t* balancer); /* [serial] */
typedef struct pliant_balancer_facts_t {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;   /* what `use` says; borrowed until pliant_balancer_free */
  int64_t per_token;  /* a row costs per_token * sum(l) + per_square * sum(l * l) */
  int64_t per_square; /* over the tokens l of its sequences */
} pliant_balancer_facts_t;
PLIANT_API int32_t pliant_balancer_look(const pliant_balancer_t* balancer, pliant_balancer_facts_t* facts,
                                        pliant_error_t* error); /* [any] */
/* What each row of the batch costs; `room` as for pliant_batches_dropped. [any] */
PLIANT_API int32_t pliant_row_costs(const pliant_batch_t* batch, int64_t per_token, int64_t per_square, int64_t* to,
                                    uint64_t room, uint64_t* count, pliant_error_t* error);
/* Shares rows of these costs out: the same answer on every machine. [serial] */
PLIANT_API int32_t pliant_balancer_assign(pliant_balancer_t* balancer, const int64_t* row_costs, uint64_t rows,
                                          const pliant_sharing_t* sharing, pliant_assignment_t** assignment,
                                          pliant_error_t* error);
/* The same without a balancer: consecutive rows for each rank. [any] */
PLIANT_API int32_t pliant_share_out(int64_t rows, const pliant_sharing_t* sharing, pliant_assignment_t** assignment,
                                    pliant_error_t* error);
PLIANT_API int32_t pliant_assignment_free(pliant_assignment_t* assignment); /* [any] */
/* Rank r has blocks offsets[r] .. offsets[r + 1] - 1, in the order in which it computes them. Arrays are borrowed until
 * pliant_assignment_free. */
typedef struct pliant_assignment_view_t {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t world_size;
  const uint64_t* offsets; /* world_size + 1 of them */
  const int64_t* blocks;   /* first row and number of rows of each block */
} pliant_assignment_view_t;
PLIANT_API int32_t pliant_assignment_look(const pliant_assignment_t* assignment, pliant_assignment_view_t* view,
                                          pliant_error_t* error); /* [any] */
/* Rank-time, in the unit of the costs. */
typedef struct pliant_waiting_t {
  uint32_t struct_size;
  uint32_t reserved;
  double work;            /* computing */
  double per_step;        /* all ranks, until the slowest has ended: they wait once a step */
  double per_micro_batch; /* the same when they also wait for each other at every micro-batch */
} pliant_waiting_t;
PLIANT_API int32_t pliant_assignment_waiting(const pliant_assignment_t* assignment, const int64_t* row_costs,
                                             uint64_t rows, pliant_waiting_t* waiting,
                                             pliant_error_t* error); /* [any] */

/* ---- Learning rate: the configured chain of rules, applied to the size of each batch. ---- */

typedef struct pliant_learning_rate_t pliant_learning_rate_t;

/* What the optimizer is to do at one step. A factor of 1 changes nothing. */
typedef struct pliant_scaling_t {
  uint32_t struct_size;
  uint32_t reserved;
  double learning_rate;           /* to use as it is */
  double scheduled_learning_rate; /* what it would be at the base batch */
  double learning_rate_factor;
  double one_minus_beta1; /* factor of 1 - beta1, with SGD of 1 - momentum */
  double one_minus_beta2;
  double epsilon;         /* factor */
  double weight_decay;    /* factor of the coefficient */
  double ema_power;       /* decay of an average of the weights: decay ^ ema_power */
  double momentum_buffer; /* factor of the first moment, once, before this step */
  double second_moment;   /* factor of the second moment, likewise */
  double progress;        /* what the step adds to progress, in the configured unit */
} pliant_scaling_t;

/* Squared norms of the gradients of one step. */
typedef struct pliant_gradient_norms_t {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t parts; /* gradients that were added, at least 2 */
  double small_norm;
  double big_norm;
} pliant_gradient_norms_t;

enum { PLIANT_LR_NEEDS_GRADIENT_NORMS = 1, PLIANT_LR_NEEDS_JOB_LENGTH = 2 };

/* `config` was opened with the need "lr". `mean_batch`: what base_batch = 0 stands for, such as the mean of epoch 0;
 * may be NULL where [lr] base_batch is set. [any] */
PLIANT_API int32_t pliant_learning_rate_make(const pliant_config_t* config, const pliant_batch_size_t* mean_batch,
                                             pliant_learning_rate_t** rate, pliant_error_t* error);
PLIANT_API int32_t pliant_learning_rate_free(pliant_learning_rate_t* rate); /* [serial] */
/* PLIANT_LR_NEEDS_... of the rules of the chain. [serial] */
PLIANT_API int32_t pliant_learning_rate_needs(pliant_learning_rate_t* rate, uint32_t* needs, pliant_error_t* error);
/* Before the first scaling. [serial] */
PLIANT_API int32_t pliant_learning_rate_set_job_length(pliant_learning_rate_t* rate, int64_t steps,
                                                       const pliant_batch_size_t* all, pliant_error_t* error);
/* What update `step`, from 0, over a batch of that size asks for. `base_lr` > 0 replaces [lr] base_lr. Changes no
 * state. [serial] */
PLIANT_API int32_t pliant_learning_rate_scaling(pliant_learning_rate_t* rate, int64_t step,
                                                const pliant_batch_size_t* size, double base_lr,
                                                pliant_scaling_t* scaling, pliant_error_t* error);
/* The step became final: once for each step, in order. `norms` may be NULL. [serial] */
PLIANT_API int32_t pliant_learning_rate_commit(pliant_learning_rate_t* rate, int64_t step,
                                               const pliant_batch_size_t* size, const pliant_gradient_norms_t* norms,
                                               double base_lr, pliant_error_t* error);
/* State of the chain; `room` as for pliant_batches_dropped. load replaces all of it, or changes nothing. [serial] */
PLIANT_API int32_t pliant_learning_rate_save(pliant_learning_rate_t* rate, char* to, uint64_t room, uint64_t* bytes,
                                             pliant_error_t* error);
PLIANT_API int32_t pliant_learning_rate_load(pliant_learning_rate_t* rate, const char* saved, uint64_t bytes,
                                             pliant_error_t* error);

/* ---- Record: what a job leaves behind that has no agent: config, lengths, ledger and snapshots in a run directory, as
 * `pliant run` leaves them; `pliant audit` and `pliant report` read it. Rank 0 has it, and no other process writes
 * there meanwhile. ---- */

typedef struct pliant_record_t pliant_record_t;

/* A new run below [run] log_dir. Of `batches` no call is under way. [any] */
PLIANT_API int32_t pliant_record_begin(const pliant_config_t* config, const pliant_plan_t* plan,
                                       pliant_batches_t* batches, pliant_record_t** record, pliant_error_t* error);
/* The run in `directory`, to go on with: pliant_record_restore is next. PLIANT_NOT_FOUND where there is none,
 * PLIANT_FAILED_PRECONDITION where it is another job's or another process writes to it, saying which. [any] */
PLIANT_API int32_t pliant_record_open(const char* directory, const pliant_config_t* config, const pliant_plan_t* plan,
                                      pliant_batches_t* batches, pliant_record_t** record, pliant_error_t* error);
PLIANT_API int32_t pliant_record_free(pliant_record_t* record); /* [serial] */

typedef struct pliant_record_facts_t {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t steps;         /* committed, on the lineage that survives: the number of the next step */
  const char* directory; /* borrowed until pliant_record_free */
} pliant_record_facts_t;
PLIANT_API int32_t pliant_record_look(pliant_record_t* record, pliant_record_facts_t* facts,
                                      pliant_error_t* error); /* [serial] */
/* From here on `world_size` ranks work; before the first commit of each group. [serial] */
PLIANT_API int32_t pliant_record_start_generation(pliant_record_t* record, int64_t world_size, const char* reason,
                                                  pliant_error_t* error);
/* The next step, over `batch`, is final, and on disk when the call returns; the optimizers apply after it.
 * `assignment`: what each rank computed, of pliant_share_out or of the balancer of the config. [serial] */
PLIANT_API int32_t pliant_record_commit(pliant_record_t* record, const pliant_batch_t* batch,
                                        const pliant_assignment_t* assignment, double loss, double learning_rate,
                                        pliant_error_t* error);
/* Keeps the state after the steps so far, whole or not at all, and what pliant_learning_rate_save gave. Older ones than
 * [run] keep_snapshots are removed. [serial] */
PLIANT_API int32_t pliant_record_keep_snapshot(pliant_record_t* record, const void* state, uint64_t bytes,
                                               const char* lr_state, uint64_t lr_bytes, pliant_error_t* error);

/* What a job goes on from; borrowed until the next call on the record. */
typedef struct pliant_restored_t {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t step;      /* the next one; 0: there is no snapshot, and nothing else is set */
  const void* state; /* what was kept */
  uint64_t bytes;
  const char* lr_state;
  uint64_t lr_bytes;
} pliant_restored_t;
/* The newest snapshot; what was committed after it is void, and will be computed again. [serial] */
PLIANT_API int32_t pliant_record_restore(pliant_record_t* record, pliant_restored_t* restored, pliant_error_t* error);

/* A run against the plan that its config, its data and its seed give. */
typedef struct pliant_audit_t {
  uint32_t struct_size;
  int32_t is_whole; /* 1: each sample of the committed steps was used once, and nothing differs from the plan */
  int64_t steps;    /* committed */
  int64_t samples_expected;
  int64_t samples_used_once;
  int64_t samples_repeated;
  int64_t samples_missing;
  int64_t differences; /* fields of steps that are not what plan and config give */
} pliant_audit_t;
/* Changes nothing in it; a job may be at work there. [any] */
PLIANT_API int32_t pliant_audit_run(const char* directory, pliant_audit_t* audit, pliant_error_t* error);

/* ---- Session: a worker's side of an elastic job. `pliant run` starts the program, resizes it in place and carries it
 * through deaths. All calls on a session come from one thread; its own threads end every wait when the group changes.
 *
 *   pliant_leave_stop_signals_to_agent();
 *   must(pliant_session_attach(&session, &error));
 *   must(pliant_session_start(session, dataset, &state, &error));
 *   for (must(next(session, &step, &error)); step.batch != NULL; must(next(session, &step, &error))) {
 *     for (m = 0; m < step.micro_batch_count; ++m) {
 *       ...                               forward, backward of the summed loss over step.micro_batches[2 * m], ...
 *       must(pliant_session_add(session, m, loss, gradient, state.gradient_size, &error));
 *     }
 *     must(pliant_session_commit(session, &committed, &error));
 *     if (committed.is_committed) apply(committed.gradient, step.learning_rate);
 *   }
 * ---- */

typedef struct pliant_session_t pliant_session_t;

/* From here on SIGINT, SIGTERM and SIGHUP do not end this process, if it is a worker of a job: the agent gets them,
 * too, and stops the job after the step under way and a snapshot. Call it first thing in main. [any] */
PLIANT_API int32_t pliant_leave_stop_signals_to_agent(void);
/* pliant_set_log_sink with one that writes to stderr; PLIANT_LOG of the environment names another level. [any] */
PLIANT_API int32_t pliant_log_to_stderr(int32_t least, pliant_error_t* error);

/* Joins the job whose agent started this process. PLIANT_FAILED_PRECONDITION, exit code 2, outside of one. [any] */
PLIANT_API int32_t pliant_session_attach(pliant_session_t** session, pliant_error_t* error);
/* Before it the state, whose arrays it reads and writes, is not freed. [maker] */
PLIANT_API int32_t pliant_session_free(pliant_session_t* session);
/* The config of the job, for the caller to free; it may outlive the session. [maker] */
PLIANT_API int32_t pliant_session_config(pliant_session_t* session, pliant_config_t** config, pliant_error_t* error);

enum {
  PLIANT_DTYPE_F32 = 1,
  PLIANT_DTYPE_F64 = 2,
  PLIANT_DTYPE_I32 = 3,
  PLIANT_DTYPE_I64 = 4,
  PLIANT_DTYPE_U8 = 5,
  PLIANT_DTYPE_F16 = 6,
  PLIANT_DTYPE_BF16 = 7
};

/* A named part of the state: a dense array in host memory or in memory of the rank's device. */
typedef struct pliant_state_array_t {
  uint32_t struct_size; /* the same in all of an array of these */
  int32_t dtype;        /* PLIANT_DTYPE_... */
  const char* name;     /* unique; letters, digits and any of ".-_/:" */
  void* memory;         /* borrowed, to be read and written in calls on the session, until pliant_session_free */
  uint64_t dimensions;  /* 0: one element */
  const int64_t* shape;
} pliant_state_array_t;

/* Everything that must be equal on all ranks between two steps: weights, optimizer, the program's own random numbers.
 */
typedef struct pliant_state_t {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t gradient_size; /* floats */
  const pliant_state_array_t* arrays;
  uint64_t array_count;
  /* What is in no array, both or none. save writes at most `room` bytes to `to` and stores their number, or the number
   * alone where `to` is NULL; same state, same bytes. load replaces the state by what save wrote. Each returns
   * PLIANT_OK or another status. Called by the thread that uses the session, within its calls. */
  int32_t (*save)(void* context, void* to, uint64_t room, uint64_t* bytes);
  int32_t (*load)(void* context, const void* saved, uint64_t bytes);
  void* context;
} pliant_state_t;

/* Declares data and state. `dataset`, the same on all workers, may be NULL: that of [data]. First weights come from one
 * worker and are copied to the others; after a restart they come from the snapshot. [maker] */
PLIANT_API int32_t pliant_session_start(pliant_session_t* session, const pliant_dataset_t* dataset,
                                        const pliant_state_t* state, pliant_error_t* error);

/* One attempt at one step. What it points to is borrowed until the next pliant_session_next, or pliant_session_free. */
typedef struct pliant_step_t {
  uint32_t struct_size;
  uint32_t reserved;
  const pliant_batch_t* batch; /* not to be freed; NULL: the job is done or was stopped, and all else is 0 */
  int64_t index;               /* committed steps before this one */
  int64_t rank;
  int64_t world_size;
  double learning_rate;
  uint64_t micro_batch_count;   /* of this rank; may be 0, and the step is committed all the same */
  const int64_t* micro_batches; /* first row and number of rows of each */
} pliant_step_t;
/* The next step for this worker. Blocks while it is a spare. PLIANT_PEER_LOST when the agent is gone. [maker] */
PLIANT_API int32_t pliant_session_next(pliant_session_t* session, pliant_step_t* step, pliant_error_t* error);
/* The rate of the step in hand and what goes with it. [maker] */
PLIANT_API int32_t pliant_session_scaling(pliant_session_t* session, pliant_scaling_t* scaling, pliant_error_t* error);
/* Adds the gradient of the SUMMED loss over micro-batch `number`, each exactly once, in order. `gradient` has
 * gradient_size elements in host memory, `size` of them; NULL and 0 where it was added in pieces. [maker] */
PLIANT_API int32_t pliant_session_add(pliant_session_t* session, uint64_t number, double loss_sum,
                                      const float* gradient, uint64_t size, pliant_error_t* error);
/* Elements [offset, offset + count) of the gradient of micro-batch `number`, of PLIANT_DTYPE_F32, _BF16 or _F16: pieces
 * in any order, as they become ready. [maker] */
PLIANT_API int32_t pliant_session_add_piece(pliant_session_t* session, uint64_t number, uint64_t offset, uint64_t count,
                                            const void* piece, int32_t dtype, pliant_error_t* error);

/* What a commit leaves behind, borrowed until the next pliant_session_next, or pliant_session_free. */
typedef struct pliant_committed_t {
  uint32_t struct_size;
  int32_t is_committed; /* 1: the caller must apply the gradient before the next pliant_session_next. 0: the group
                           changed first, or the update of this step is left out; apply nothing, and all else is 0 */
  double loss;          /* mean over the loss tokens of the global batch */
  uint64_t gradient_size;
  const float* gradient; /* mean over the loss tokens, in host memory */
} pliant_committed_t;
/* Reduces, votes and waits for the verdict. PLIANT_PEER_LOST when the agent is gone. [maker] */
PLIANT_API int32_t pliant_session_commit(pliant_session_t* session, pliant_committed_t* committed,
                                         pliant_error_t* error);

#ifdef __cplusplus
}
#endif
#endif
