/* Pliant for C, and for whatever calls C: config, plan, batches, micro-batches, shares and learning rates of an elastic
 * job, its session, communicators and sharded parameters. C11; needs nothing beside it. The library is libpliant
 * (pkg-config pliant; find_package(pliant COMPONENTS c)).
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
 *   [maker]   the thread that made the handle; another one, and a forked process, is refused with
 *             PLIANT_FAILED_PRECONDITION
 * Freeing a handle while a call on it is under way is refused where the function of its kind is [serial] or [maker].
 * A fork waits while another thread opens or closes plugins, 10 s at most; a child of one that waited in vain is
 * refused what opens plugins, with PLIANT_FAILED_PRECONDITION. In a child, a [serial] handle that was in use at the
 * fork stays in use.
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
 * call. The calls come from any thread, one after the other. A sink must not call Pliant: a call that logs, and this
 * one, would wait for itself for ever. `context` is handed to it, and is in use until another sink is set. [any] */
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
/* Fails, as a config with a finding does: "app.key problem" with the position of [app] `key`. For what a program finds
 * in its own options. [any] */
PLIANT_API int32_t pliant_config_refuse_app(const pliant_config_t* config, const char* key, const char* problem,
                                            pliant_error_t* error);
/* *has is 1 where the file, or what was set over it, has the section. [any] */
PLIANT_API int32_t pliant_config_has(const pliant_config_t* config, const char* section, int32_t* has,
                                     pliant_error_t* error);
/* What `use` says in the section of a kind of plugins; PLIANT_FAILED_PRECONDITION where the config was opened without
 * that need. Borrowed until pliant_config_free. [any] */
PLIANT_API int32_t pliant_config_use(const pliant_config_t* config, const char* section, const char** name,
                                     pliant_error_t* error);
/* The same config with more of `sets`, as in pliant_config_options_t, for the caller to free. [any] */
PLIANT_API int32_t pliant_config_with(const pliant_config_t* config, const char* const* sets, uint64_t count,
                                      pliant_config_t** changed, pliant_error_t* error);

/* [data]. Files are absolute, empty where none is named; texts are borrowed until pliant_config_free. */
typedef struct pliant_data_options_t {
  uint32_t struct_size;
  uint32_t reserved;
  const char* text;
  const char* lengths;
  const char* loss_tokens;
  const char* length_column; /* of `lengths`, where that is .jsonl; likewise: */
  const char* loss_tokens_column;
} pliant_data_options_t;
PLIANT_API int32_t pliant_config_data(const pliant_config_t* config, pliant_data_options_t* data,
                                      pliant_error_t* error); /* [any] */

/* [lr], without the rules' own options: what an optimizer begins with. Texts are borrowed until pliant_config_free. */
typedef struct pliant_lr_options_t {
  uint32_t struct_size;
  uint32_t reserved;
  double base_lr;
  double base_batch;     /* in `unit`; 0: the mean batch of epoch 0 */
  const char* unit;      /* "rows", "sequences", "tokens" or "loss_tokens" */
  const char* optimizer; /* its family; "unknown" where none is named */
  uint64_t schedule_count;
  const char* const* schedule; /* rules before `use` */
  uint64_t then_count;
  const char* const* then; /* rules after it */
  double beta1;            /* what suits base_batch, with SGD momentum; NaN: not set. Likewise: */
  double beta2;
  double epsilon;
  double weight_decay;
  double ema; /* decay of an average of the weights */
} pliant_lr_options_t;
PLIANT_API int32_t pliant_config_lr(const pliant_config_t* config, pliant_lr_options_t* lr,
                                    pliant_error_t* error); /* [any] */
/* The effective config as one TOML document that opens anywhere to the same config. Borrowed until
 * pliant_config_free. [any] */
PLIANT_API int32_t pliant_config_resolved(const pliant_config_t* config, const char** toml, uint64_t* bytes,
                                          pliant_error_t* error);

typedef struct pliant_imported_t pliant_imported_t;
/* Translates a DeepSpeed config, JSON as Python reads it, into a pliant.toml that plans as DeepSpeed does, with an
 * account of every key. `name` is how messages call it, `target` what the comments of the TOML call the file that it
 * will be written to; both may be NULL. Exit code 2, with a position, for text that is no JSON, for a block that
 * DeepSpeed refuses, and where nothing can be carried. [any] */
PLIANT_API int32_t pliant_import_deepspeed(const char* json, uint64_t bytes, const char* name, const char* target,
                                           pliant_imported_t** imported, pliant_error_t* error);
PLIANT_API int32_t pliant_imported_free(pliant_imported_t* imported); /* [any] */
/* Keys are dotted paths. Texts and arrays are borrowed until pliant_imported_free. */
typedef struct pliant_imported_view_t {
  uint32_t struct_size;
  uint32_t reserved;
  const char* toml; /* a whole document, for pliant_config_parse */
  uint64_t bytes;
  uint64_t carried_count;
  const char* const* carried_from;
  const char* const* carried_to; /* a key, or a section that is there because of it */
  uint64_t not_carried_count;
  const char* const* not_carried;
  const char* const* reasons; /* of each of them, one line */
} pliant_imported_view_t;
PLIANT_API int32_t pliant_imported_look(const pliant_imported_t* imported, pliant_imported_view_t* view,
                                        pliant_error_t* error); /* [any] */

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
/* A planner asked once, as `pliant plan` and `pliant run` ask: after pliant_check_scheduler; WORLD_SIZE of the
 * environment is handed to the policy, its warnings go to the log, too. [any] */
PLIANT_API int32_t pliant_plan_make(const pliant_config_t* config, int64_t world_size, pliant_plan_t** plan,
                                    pliant_error_t* error);
/* PLIANT_FAILED_PRECONDITION, exit code 2, naming the key, where a scheduler left an elasticity block in
 * PLIANT_ELASTICITY_CONFIG or DEEPSPEED_ELASTICITY_CONFIG that is not that of `config`, which was opened with the need
 * "elasticity". [any] */
PLIANT_API int32_t pliant_check_scheduler(const pliant_config_t* config, pliant_error_t* error);
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
  /* Rows that the program made, for a sampler that takes rows, such as `rows`: row i is the sequences row_ids[
   * row_offsets[i]] .. row_ids[row_offsets[i + 1] - 1], whole and in that order. row_offsets has row_count + 1
   * elements, which ascend from 0, no two alike; a sequence is in one row or in none. row_count 0: those that the
   * config names. */
  uint64_t row_count;
  const int64_t* row_offsets;
  const int64_t* row_ids;
  /* What each sequence costs, or each row, >= 0, for pliant_row_costs in place of rates; one of them, or both NULL:
   * those that the config names, or rates. Only ratios matter. */
  const int64_t* costs;     /* `count` of them */
  const int64_t* row_costs; /* `row_count` of them */
} pliant_lengths_t;
/* O(1), or O(count) where the arrays are copied. Lengths, rows and costs are checked by pliant_batches_make. [any] */
PLIANT_API int32_t pliant_dataset_make(const pliant_lengths_t* lengths, pliant_dataset_t** dataset,
                                       pliant_error_t* error);
/* The data set that [data] of the config names. [any] */
PLIANT_API int32_t pliant_dataset_load(const pliant_config_t* config, pliant_dataset_t** dataset,
                                       pliant_error_t* error);
/* The lengths of a file that some other tool left: .npy, .jsonl, .txt, .i32, .i64, DeepSpeed's metric files and more,
 * as its first bytes and its suffix say. `column` of .jsonl; NULL: "length". Exit code 2: PLIANT_NOT_FOUND,
 * PLIANT_DATA_LOSS for one that is damaged or of another kind, PLIANT_INVALID_ARGUMENT for a value that is no length.
 * [any] */
PLIANT_API int32_t pliant_dataset_read(const char* file, const char* column, pliant_dataset_t** dataset,
                                       pliant_error_t* error);
PLIANT_API int32_t pliant_dataset_free(pliant_dataset_t* dataset); /* [any] */
/* The fields but `release` and `context`; arrays are borrowed until pliant_dataset_free. [any] */
PLIANT_API int32_t pliant_dataset_look(const pliant_dataset_t* dataset, pliant_lengths_t* lengths,
                                       pliant_error_t* error);

/* What is to be measured where there are no lengths yet, and how. */
typedef struct pliant_length_analysis_t {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t count; /* sequences, at least 1 */
  /* Stores the tokens of sequence `number`, from 0, and returns PLIANT_OK or another status, which ends the analysis.
   * Once for each number, by `threads` threads at once. */
  int32_t (*length_of)(void* context, int64_t number, int64_t* length);
  /* NULL: none. After every few hundred sequences, by one thread at a time; another status than PLIANT_OK ends the
   * analysis. */
  int32_t (*progress)(void* context, int64_t done, int64_t total);
  void* context;
  const char* identity; /* what decides the lengths besides `count`, such as the tokenizer; 1 byte to 64 KiB */
  int64_t threads;      /* 0: one for each processor */
} pliant_length_analysis_t;
typedef struct pliant_analysed_lengths_t {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t measured; /* sequences, by this call; 0: the file was there */
  int64_t resumed;  /* sequences that a call which was stopped had measured */
} pliant_analysed_lengths_t;
/* Sees to it that `file`, an .npy for pliant_dataset_read and for [data] lengths, holds the lengths of all sequences:
 * it measures what is not there yet and keeps what was measured where it is killed. `analysed` may be NULL. Where
 * length_of fails, its status, with the sequence; PLIANT_FAILED_PRECONDITION, exit code 2, for a file that was measured
 * as something else and while another process is at it; PLIANT_DATA_LOSS for a damaged one. [any] */
PLIANT_API int32_t pliant_analyse_lengths(const char* file, const pliant_length_analysis_t* analysis,
                                          pliant_analysed_lengths_t* analysed, pliant_error_t* error);

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

/* Rows [first, first + count) of an epoch, at least one, as if they were one batch; its index is -1. [serial] */
PLIANT_API int32_t pliant_batches_rows(pliant_batches_t* batches, int64_t epoch, int64_t first, int64_t count,
                                       pliant_batch_t** batch, pliant_error_t* error);
/* *has is 1 where the job has a step `step`. Plans the epochs before it that were not yet counted. [serial] */
PLIANT_API int32_t pliant_batches_has_step(pliant_batches_t* batches, int64_t step, int32_t* has,
                                           pliant_error_t* error);
/* Has next give the batch of `step`. Plans nothing. PLIANT_OUT_OF_RANGE below 0. [serial] */
PLIANT_API int32_t pliant_batches_seek(pliant_batches_t* batches, int64_t step, pliant_error_t* error);

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

/* Ids of the sequences that `epoch` truncates, likewise. [serial] */
PLIANT_API int32_t pliant_batches_truncated(pliant_batches_t* batches, int64_t epoch, int64_t* to, uint64_t room,
                                            uint64_t* count, pliant_error_t* error);
/* What the rows of an epoch fill of what they could hold. */
typedef struct pliant_packing_t {
  uint32_t struct_size;
  uint32_t reserved;
  const char* unit;   /* what counts: "tokens", "padded_tokens", "loss_tokens" or "cost"; borrowed until
                         pliant_batches_free */
  int64_t budget;     /* units that a row can hold; 0: the sampler sets no limit */
  double used;        /* units in all rows */
  int64_t least_rows; /* no packing of the same entries has fewer; 0: not known */
  double efficiency;  /* part of the room of all rows that is used */
} pliant_packing_t;
PLIANT_API int32_t pliant_batches_packing(pliant_batches_t* batches, int64_t epoch, pliant_packing_t* packing,
                                          pliant_error_t* error); /* [serial] */

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
/* What each row of the batch costs, by the rates, or by the costs that were given with the data set or that [balancer]
 * names; `room` as for pliant_batches_dropped. [any] */
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

/* A new run below [run] log_dir; it is a call on `batches`, until it returns. [serial] */
PLIANT_API int32_t pliant_record_begin(const pliant_config_t* config, const pliant_plan_t* plan,
                                       pliant_batches_t* batches, pliant_record_t** record, pliant_error_t* error);
/* The run in `directory`, to go on with: pliant_record_restore is next. PLIANT_NOT_FOUND where there is none,
 * PLIANT_FAILED_PRECONDITION where it is another job's or another process writes to it, saying which. A call on
 * `batches`, until it returns. [serial] */
PLIANT_API int32_t pliant_record_open(const char* directory, const pliant_config_t* config, const pliant_plan_t* plan,
                                      pliant_batches_t* batches, pliant_record_t** record, pliant_error_t* error);
PLIANT_API int32_t pliant_record_free(pliant_record_t* record); /* [serial] */

typedef struct pliant_record_facts_t {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t steps;         /* committed, on the lineage that survives: the number of the next step */
  const char* directory; /* borrowed until pliant_record_free */
  int64_t epoch; /* where the batch of step `steps` is: pliant_batches_batch has it with one plan. An index that is */
  int64_t index; /* the number of batches of its epoch stands for the first batch of the next epoch */
} pliant_record_facts_t;
PLIANT_API int32_t pliant_record_look(pliant_record_t* record, pliant_record_facts_t* facts,
                                      pliant_error_t* error); /* [serial] */
/* From here on `world_size` ranks work; before the first commit of each group. [serial] */
PLIANT_API int32_t pliant_record_start_generation(pliant_record_t* record, int64_t world_size, const char* reason,
                                                  pliant_error_t* error);
/* The next step, over `batch`, is final, and on disk when the call returns; the optimizers apply after it.
 * `assignment`: what each rank computed, of pliant_share_out, or of the balancer of the config where it has
 * [balancer]; with PLIANT_SHARING_DETERMINISTIC where [run] deterministic is set, and with PLIANT_SHARING_IN_TURN where
 * it is and the config has [coordinator]. An audit names any other as a difference. [serial] */
PLIANT_API int32_t pliant_record_commit(pliant_record_t* record, const pliant_batch_t* batch,
                                        const pliant_assignment_t* assignment, double loss, double learning_rate,
                                        pliant_error_t* error);
/* Keeps the state after the steps so far, whole or not at all, and what pliant_learning_rate_save gave. Older ones than
 * [run] keep_snapshots are removed. [serial] */
PLIANT_API int32_t pliant_record_keep_snapshot(pliant_record_t* record, const void* state, uint64_t bytes,
                                               const char* lr_state, uint64_t lr_bytes, pliant_error_t* error);

/* The same of a state that is in no one buffer: `next` is called until it gives 0 bytes; a piece is borrowed until it
 * is called again. It returns PLIANT_OK or another status, which is the call's: nothing is kept then. [serial] */
PLIANT_API int32_t pliant_record_keep_pieces(pliant_record_t* record,
                                             int32_t (*next)(void* context, const void** piece, uint64_t* bytes),
                                             void* context, const char* lr_state, uint64_t lr_bytes,
                                             pliant_error_t* error);

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
/* The same without a copy of the state: `take` gets it front to back, in pieces of at most 1 MiB, each borrowed for
 * that call. restored->state is NULL. What was taken is of no use where the call fails, also with a status of `take`.
 * [serial] */
PLIANT_API int32_t pliant_record_restore_pieces(pliant_record_t* record,
                                                int32_t (*take)(void* context, const void* piece, uint64_t bytes),
                                                void* context, pliant_restored_t* restored, pliant_error_t* error);

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

typedef struct pliant_report_t pliant_report_t;
enum {
  PLIANT_GROUP_UNKNOWN = 0, /* the ledger does not say */
  PLIANT_GROUP_START = 1,
  PLIANT_GROUP_RESUME = 2, /* another `pliant run` went on with the job */
  PLIANT_GROUP_LOSS = 3,   /* a worker was killed, or ended */
  PLIANT_GROUP_LEAVE = 4,  /* workers had announced that they leave */
  PLIANT_GROUP_JOIN = 5,   /* a worker was ready to join */
  PLIANT_GROUP_FAULT = 6   /* all lived, but could not go on together */
};
/* The course of a run, from its ledger, which it does not change; a job may be at work there. [any] */
PLIANT_API int32_t pliant_report_run(const char* directory, pliant_report_t** report, pliant_error_t* error);
PLIANT_API int32_t pliant_report_free(pliant_report_t* report); /* [any] */
/* Texts and arrays are borrowed until pliant_report_free. */
typedef struct pliant_report_view_t {
  uint32_t struct_size;
  uint32_t reserved;
  const char* run_id;
  const char* directory;
  uint64_t step_count;        /* committed, on the lineage that survives: of step i, from 0, element i of */
  const int64_t* generations; /* each of these arrays */
  const int64_t* world_sizes;
  const double* losses; /* mean over the loss tokens; may be infinite or NaN */
  const double* learning_rates;
  const int64_t* tokens;
  const int64_t* rows;       /* without those that are empty */
  const uint8_t* is_skipped; /* 1: without an update, it was not finite */
  const uint8_t* is_short;   /* 1: fewer rows than the job's global batch */
  uint64_t group_count;      /* worker groups that began to work, in order; of each: */
  const int64_t* group_generations;
  const int64_t* group_steps; /* the first */
  const int64_t* group_world_sizes;
  const int32_t* group_causes; /* PLIANT_GROUP_... */
  const char* const* group_reasons;
  const int64_t* group_steps_discarded; /* committed before, and computed again by it */
  int64_t steps_discarded;              /* of the whole run */
  int64_t steps_skipped;
  int64_t not_finite_step; /* the job last ended there; -1: it did not */
  const char* not_finite_reason;
} pliant_report_view_t;
PLIANT_API int32_t pliant_report_look(const pliant_report_t* report, pliant_report_view_t* view,
                                      pliant_error_t* error); /* [any] */

typedef struct pliant_comparison_t pliant_comparison_t;
/* Compares samples, states, learning rates and losses of two runs step by step. Only workers of `pliant run` take
 * digests of states: of what a record left it is not known whether the weights are equal, and it says so. [any] */
PLIANT_API int32_t pliant_compare_runs(const char* directory, const char* other, pliant_comparison_t** comparison,
                                       pliant_error_t* error);
PLIANT_API int32_t pliant_comparison_free(pliant_comparison_t* comparison); /* [any] */
/* Texts and arrays are borrowed until pliant_comparison_free. */
typedef struct pliant_comparison_view_t {
  uint32_t struct_size;
  int32_t is_equal; /* 0 or 1 */
  int64_t steps;    /* compared: those that both have */
  int64_t states;   /* of these, with a digest of the state in both */
  int64_t differs;  /* the first step that differs; -1: none */
  const char* how;  /* in words; empty where they are equal */
  uint64_t part_count;
  const char* const* parts; /* arrays of the state that differ; "(rest)", "(lr)" */
  int64_t parts_step;       /* steps in the states that they are of; -1: none were compared by parts */
} pliant_comparison_view_t;
PLIANT_API int32_t pliant_comparison_look(const pliant_comparison_t* comparison, pliant_comparison_view_t* view,
                                          pliant_error_t* error); /* [any] */

enum {
  PLIANT_EXPORT_BEST = 1,   /* the snapshot with the best value of [run] keep_best */
  PLIANT_EXPORT_REPLACE = 2 /* a file that is there already may be replaced */
};
typedef struct pliant_export_options_t {
  uint32_t struct_size;
  uint32_t flags;      /* PLIANT_EXPORT_... */
  const int64_t* step; /* the snapshot with so many committed steps; NULL: the newest that is there */
} pliant_export_options_t;
typedef struct pliant_exported_t {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t step;    /* committed steps that the snapshot holds */
  double value;    /* of [run] keep_best, for which it is the best one; NaN where that was not asked for */
  int64_t tensors; /* that were written */
  uint64_t bytes;  /* of their elements */
} pliant_exported_t;
/* Writes a snapshot of the run in the directory `from` to `file`, a .safetensors file, whole or not at all: of a
 * sharded job its parameters, f32 and by name, of another one all arrays of its state. Its metadata have run_id and
 * step and, of the best one, metric and value. `options` may be NULL: the newest snapshot, and no file is replaced.
 * `from` may be a snapshot file, too, of which nothing is chosen. Changes nothing in the run; a job may be at work
 * there. `exported` may be NULL.
 *
 * PLIANT_NOT_FOUND where there is no such run, snapshot or folder, or no snapshot has a value of keep_best;
 * PLIANT_FAILED_PRECONDITION where the run keeps no best one, the snapshot has no arrays, `file` is there already, or
 * this user may not write it; PLIANT_INVALID_ARGUMENT where the best one and that of a step were both asked for. Each
 * of these has exit code 2, but for an argument that is NULL. PLIANT_DATA_LOSS for a damaged snapshot or ledger,
 * PLIANT_RESOURCE_EXHAUSTED for a full disk. [any] */
PLIANT_API int32_t pliant_export_snapshot(const char* from, const pliant_export_options_t* options, const char* file,
                                          pliant_exported_t* exported, pliant_error_t* error);

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
/* Joins the job of an agent that did not start this process, `pliant run --listen`, and that waits for calls at
 * `address`, the name of an abstract Unix socket. Waits until all ranks have called. PLIANT_INVALID_ARGUMENT for a rank
 * that there is not; PLIANT_FAILED_PRECONDITION, exit code 2, where nobody of this user listens there;
 * PLIANT_PEER_LOST where the agent ends before it has answered. Stop signals are passed on to the agent by
 * pliant_leave_stop_signals_to_agent, called after it. [any] */
PLIANT_API int32_t pliant_session_attach_at(pliant_session_t** session, const char* address, int64_t rank,
                                            int64_t world_size, pliant_error_t* error);
/* What a handler of SIGINT, SIGTERM or SIGHUP of the program's own does then: the agent gets the signal. It is
 * async-signal-safe. In processes that have not attached so it does nothing. [any] */
PLIANT_API int32_t pliant_pass_stop_signal(int32_t number);
/* Before it the state, whose arrays it reads and writes, is not freed. [maker] */
PLIANT_API int32_t pliant_session_free(pliant_session_t* session);
/* The config of the job, for the caller to free; it may outlive the session. [maker] */
PLIANT_API int32_t pliant_session_config(pliant_session_t* session, pliant_config_t** config, pliant_error_t* error);

/* Says that this worker does `what` from now on, evaluation or compilation say, which is no step: until
 * pliant_session_end_busy, and for `at_most_s` seconds at most, neither it nor those that wait for it are taken to hang
 * ([run] hang_timeout_s; before the start start_timeout_s). A worker that takes longer is killed once the group has
 * waited for hang_timeout_s, and `what` is named. It has 1 to 200 bytes. Pairs may nest: the last begin counts.
 * [maker] */
PLIANT_API int32_t pliant_session_begin_busy(pliant_session_t* session, const char* what, double at_most_s,
                                             pliant_error_t* error);
/* Ends what was begun last. PLIANT_FAILED_PRECONDITION where nothing was. [maker] */
PLIANT_API int32_t pliant_session_end_busy(pliant_session_t* session, pliant_error_t* error);

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
 * worker and are copied to the others; after a restart they come from the snapshot. One that is refused keeps nothing
 * and may be tried again. [maker] */
PLIANT_API int32_t pliant_session_start(pliant_session_t* session, const pliant_dataset_t* dataset,
                                        const pliant_state_t* state, pliant_error_t* error);

/* What the program does around a snapshot that this rank writes: of a state that is whole one rank does, as of a
 * sharded one each its part. Called by the thread that uses the session, within its calls; each may be NULL, and a
 * second call replaces both. `before` returns PLIANT_OK, or another status, which keeps this snapshot from being
 * written. `after` gets the file, of a sharded job there once all parts are, and why it was not written, "" where it
 * was; both are borrowed for the call. Neither may free the session. [maker] */
PLIANT_API int32_t pliant_session_on_snapshot(pliant_session_t* session, int32_t (*before)(void* context, int64_t step),
                                              void (*after)(void* context, int64_t step, const char* file,
                                                            const char* why),
                                              void* context, pliant_error_t* error);

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
  int64_t shares;               /* rises whenever rows may be shared out anew, as with each generation */
} pliant_step_t;
/* The next step for this worker. Blocks while it is a spare. PLIANT_PEER_LOST when the agent is gone. A pass over a
 * sharded model that was not ended is given up, and all ranks make the step again. [maker] */
PLIANT_API int32_t pliant_session_next(pliant_session_t* session, pliant_step_t* step, pliant_error_t* error);
/* The step `ahead` steps, at least 1, after the one that pliant_session_next gave last, for a loader that reads ahead.
 * Its batch is that of the step whatever becomes of the group; its micro-batches are if the step has the same `shares`
 * when it comes. `learning_rate` is 0. NULL for `batch` past the end of the job and past the epoch after that of the
 * step in hand. The first look into that later epoch plans it, as its begin would; until then the rows of two epochs
 * are in memory. What it points to is borrowed until the next pliant_session_next, or pliant_session_free. [maker] */
PLIANT_API int32_t pliant_session_coming(pliant_session_t* session, int64_t ahead, pliant_step_t* step,
                                         pliant_error_t* error);
/* The rate of the step in hand and what goes with it. [maker] */
PLIANT_API int32_t pliant_session_scaling(pliant_session_t* session, pliant_scaling_t* scaling, pliant_error_t* error);
/* The same for a group of parameters whose base rate is `base_lr`, above 0, in place of [lr] base_lr. [maker] */
PLIANT_API int32_t pliant_session_scaling_of(pliant_session_t* session, double base_lr, pliant_scaling_t* scaling,
                                             pliant_error_t* error);
/* The same for a group of parameters that [lr.groups] has by name; PLIANT_NOT_FOUND for another one. [maker] */
PLIANT_API int32_t pliant_session_scaling_of_group(pliant_session_t* session, const char* group,
                                                   pliant_scaling_t* scaling, pliant_error_t* error);
/* Adds the gradient of the SUMMED loss over micro-batch `number`, each exactly once, in order. `gradient` has
 * gradient_size elements in host memory, `size` of them; NULL and 0 where it was added in pieces. [maker] */
PLIANT_API int32_t pliant_session_add(pliant_session_t* session, uint64_t number, double loss_sum,
                                      const float* gradient, uint64_t size, pliant_error_t* error);
/* Elements [offset, offset + count) of the gradient of micro-batch `number`, of PLIANT_DTYPE_F32, _BF16 or _F16: pieces
 * in any order, as they become ready. In fast mode those of the last micro-batch travel to the other ranks at once,
 * from the end of the gradient to its beginning; where such a step is not committed all ranks make it again. [maker] */
PLIANT_API int32_t pliant_session_add_piece(pliant_session_t* session, uint64_t number, uint64_t offset, uint64_t count,
                                            const void* piece, int32_t dtype, pliant_error_t* error);

/* How all values that ranks give for one name become one. Sums are exact and rounded once. */
enum {
  PLIANT_METRIC_MEAN = 1, /* sum of value times weight, divided by the sum of the weights */
  PLIANT_METRIC_SUM = 2,
  PLIANT_METRIC_MAX = 3,
  PLIANT_METRIC_MIN = 4
};
/* Gives a metric of the step in hand, before its commit: `pliant run` shows it and the ledger keeps it. Ranks may give
 * different names, or none. `weight` is of PLIANT_METRIC_MEAN alone, rows or tokens say. `name` is 1 to 64 letters,
 * digits and any of ".-_/:", and there are 64 names of a step at most. [maker] */
PLIANT_API int32_t pliant_session_metric(pliant_session_t* session, const char* name, double value, double weight,
                                         int32_t rule, pliant_error_t* error);
/* Gives a result of an evaluation of the present state. After a commit that gave a gradient, this state has the update
 * of the step in hand, which the program has made by then; else those of the steps before. Combined over ranks in the
 * same way once all have gone on to the next step, or the job has ended. What is given before a commit that comes to
 * nothing is dropped: the step is made again, and the evaluation with it. PLIANT_FAILED_PRECONDITION before the first
 * pliant_session_next, when a worker that joins does not hold the job's state. [maker] */
PLIANT_API int32_t pliant_session_evaluated(pliant_session_t* session, const char* name, double value, double weight,
                                            int32_t rule, pliant_error_t* error);

/* The last value of `name` that a commit has told of, and after how many steps it was found; step -1: there is none. An
 * evaluation after n steps is told with the commit of the step after it, to all ranks. `step` may be NULL. [maker] */
PLIANT_API int32_t pliant_session_last_evaluation(pliant_session_t* session, const char* name, double* value,
                                                  int64_t* step, pliant_error_t* error);
/* Asks for the end of the job after the step whose commit comes next. One rank is enough: that step is the last one for
 * all, a snapshot follows, and the job ends with exit code 0 and `reason`, 1 to 200 bytes, in summary and ledger.
 * [maker] */
PLIANT_API int32_t pliant_session_end_after_step(pliant_session_t* session, const char* reason, pliant_error_t* error);

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
/* The same with `gradient` where it lies, in memory of the rank's device: nothing is copied. [maker] */
PLIANT_API int32_t pliant_session_commit_on_device(pliant_session_t* session, pliant_committed_t* committed,
                                                   pliant_error_t* error);

/* ---- Devices: the accelerator of a config, its memory and its streams. Needed by programs that compute on a device or
 * exchange data of their own; all others get along without. ---- */

typedef struct pliant_accelerator_t pliant_accelerator_t;
typedef struct pliant_buffer_t pliant_buffer_t;
typedef struct pliant_stream_t pliant_stream_t;
typedef struct pliant_event_t pliant_event_t;

/* `config` was opened with the need "accelerator". [any] */
PLIANT_API int32_t pliant_accelerator_make(const pliant_config_t* config, pliant_accelerator_t** accelerator,
                                           pliant_error_t* error);
/* That of the session, for the caller to free; it may outlive the session. PLIANT_NOT_FOUND, exit code 3, where the
 * machine has no device of it. [maker] */
PLIANT_API int32_t pliant_session_accelerator(pliant_session_t* session, pliant_accelerator_t** accelerator,
                                              pliant_error_t* error);
PLIANT_API int32_t pliant_accelerator_free(pliant_accelerator_t* accelerator); /* [any] */

typedef struct pliant_accelerator_facts_t {
  uint32_t struct_size;
  int32_t devices;
  const char* why_none; /* why there are 0, empty where the accelerator does not say; borrowed until
                           pliant_accelerator_free */
} pliant_accelerator_facts_t;
PLIANT_API int32_t pliant_accelerator_look(const pliant_accelerator_t* accelerator, pliant_accelerator_facts_t* facts,
                                           pliant_error_t* error); /* [any] */

enum {
  PLIANT_DEVICE_HOST_VISIBLE = 1,    /* the CPU reads and writes its memory */
  PLIANT_DEVICE_FIXED_ORDER = 2,     /* reductions add in rank order */
  PLIANT_DEVICE_SHARED_MEMORY = 4,   /* PLIANT_BUFFER_SHARED is more than pinned memory */
  PLIANT_DEVICE_EXCHANGE_MEMORY = 8, /* PLIANT_BUFFER_EXCHANGE is more than device memory. Likewise: */
  PLIANT_DEVICE_WINDOW_MEMORY = 16
};

typedef struct pliant_device_t {
  uint32_t struct_size;
  uint32_t flags; /* PLIANT_DEVICE_... */
  uint64_t memory_bytes;
  uint64_t free_bytes; /* that may still be had, as far as can be told */
  char name[128];      /* ended by a NUL: all of it, or whole characters */
} pliant_device_t;
/* Of device `device`, from 0. [any] */
PLIANT_API int32_t pliant_accelerator_device(const pliant_accelerator_t* accelerator, int32_t device,
                                             pliant_device_t* facts, pliant_error_t* error);

enum {
  PLIANT_BUFFER_DEVICE = 1,
  PLIANT_BUFFER_PINNED = 2,   /* the CPU's, where the device copies fastest */
  PLIANT_BUFFER_SHARED = 3,   /* read and written by both; pinned where the device has none */
  PLIANT_BUFFER_EXCHANGE = 4, /* the device's, for collectives; plain device memory where it has none. Likewise: */
  PLIANT_BUFFER_WINDOW = 5    /* for pliant_communicator_register_window */
};

/* Memory, aligned to 64 bytes, of PLIANT_BUFFER_WINDOW to 4096. [any] */
PLIANT_API int32_t pliant_buffer_make(const pliant_accelerator_t* accelerator, int32_t device, uint64_t bytes,
                                      int32_t kind, pliant_buffer_t** buffer, pliant_error_t* error);
/* No enqueued work may use it then. [any] */
PLIANT_API int32_t pliant_buffer_free(pliant_buffer_t* buffer);
/* `*memory` is borrowed until pliant_buffer_free. `bytes` may be NULL. [any] */
PLIANT_API int32_t pliant_buffer_look(const pliant_buffer_t* buffer, void** memory, uint64_t* bytes,
                                      pliant_error_t* error);

enum {
  PLIANT_ROLE_COMPUTE = 0,
  PLIANT_ROLE_GATHER = 1,
  PLIANT_ROLE_SCATTER = 2,
  PLIANT_ROLE_TO_DEVICE = 3,
  PLIANT_ROLE_TO_HOST = 4
};

/* A queue of work that runs in order. `role`, PLIANT_ROLE_..., says what it is for; `priority`: -1 low, 0, 1 high; both
 * are hints. [any] */
PLIANT_API int32_t pliant_stream_make(const pliant_accelerator_t* accelerator, int32_t device, int32_t role,
                                      int32_t priority, pliant_stream_t** stream, pliant_error_t* error);
/* The one on which a session reads gradients in pieces and sharded parameters are gathered, and the number of its
 * device; not to be freed, borrowed until pliant_session_free. `device` may be NULL. [maker] */
PLIANT_API int32_t pliant_session_stream(pliant_session_t* session, pliant_stream_t** stream, int32_t* device,
                                         pliant_error_t* error);
/* Waits for what was enqueued. [serial] */
PLIANT_API int32_t pliant_stream_free(pliant_stream_t* stream);
/* The functions below enqueue and return at once. What the work meets is the status of pliant_stream_synchronize, which
 * waits for all of it: PLIANT_PEER_LOST and PLIANT_ABORTED say that a collective failed. [serial] */
PLIANT_API int32_t pliant_stream_synchronize(pliant_stream_t* stream, pliant_error_t* error);
/* *is_idle is 1 when all has run; tells no failure. [serial] */
PLIANT_API int32_t pliant_stream_is_idle(pliant_stream_t* stream, int32_t* is_idle, pliant_error_t* error);
/* Any mix of device, pinned and plain memory; ranges do not overlap. [serial] */
PLIANT_API int32_t pliant_stream_copy(pliant_stream_t* stream, void* to, const void* from, uint64_t bytes,
                                      pliant_error_t* error);
PLIANT_API int32_t pliant_stream_fill(pliant_stream_t* stream, void* to, uint8_t byte, uint64_t bytes,
                                      pliant_error_t* error); /* [serial] */

enum { PLIANT_REDUCE_SUM = 1, PLIANT_REDUCE_MIN = 2, PLIANT_REDUCE_MAX = 3 };

/* to[i] = (from[0][i] op from[1][i] op ...) * scale, in this order; 1 to 1024 sources, `to` may be one of them. 16-bit
 * floats are computed as floats and rounded once; integers wrap around and need scale = 1. [serial] */
PLIANT_API int32_t pliant_stream_reduce(pliant_stream_t* stream, void* to, const void* const* from, uint64_t sources,
                                        uint64_t count, int32_t dtype, int32_t op, double scale, pliant_error_t* error);
/* to[i] = from[i] as another type. [serial] */
PLIANT_API int32_t pliant_stream_cast(pliant_stream_t* stream, void* to, int32_t to_dtype, const void* from,
                                      int32_t from_dtype, uint64_t count, pliant_error_t* error);

/* A point on a stream. Never recorded, it counts as reached. [any] */
PLIANT_API int32_t pliant_event_make(const pliant_accelerator_t* accelerator, int32_t device, pliant_event_t** event,
                                     pliant_error_t* error);
/* Of a stream that waits for it nothing is left to run then. [serial] */
PLIANT_API int32_t pliant_event_free(pliant_event_t* event);
/* After what was enqueued on the stream so far. [serial] */
PLIANT_API int32_t pliant_event_record(pliant_event_t* event, pliant_stream_t* stream, pliant_error_t* error);
/* What is enqueued on the stream from now on waits for the event as recorded by now. [serial] */
PLIANT_API int32_t pliant_stream_wait(pliant_stream_t* stream, pliant_event_t* event, pliant_error_t* error);
PLIANT_API int32_t pliant_event_synchronize(pliant_event_t* event, pliant_error_t* error); /* [serial] */

/* ---- Optimizer: AdamW and squared norms, defined to the bit: the same on every device, and wherever an array is cut.
 * The functions without a stream compute at once, in memory that the CPU reads and writes; those with one enqueue work
 * on device or pinned memory, and wait and compute on the CPU where the accelerator has none of its own. ---- */

/* One update of AdamW. For each weight w with its gradient, first moment m and second moment v
 *   g = gradient * gradient_scale
 *   m = beta1 * m + (1 - beta1) * g
 *   v = beta2 * v + ((1 - beta2) * g) * g
 *   w = w - ((rate * m) / (sqrt(v) * correction + epsilon) + decay * w)
 * in f32, each operation rounded once. No field has a default: 0 is 0. No two arrays overlap. */
typedef struct pliant_adamw_t {
  uint32_t struct_size;
  float gradient_scale; /* such as that of clipping; else 1 */
  float beta1;
  float beta2;
  float rate;       /* learning rate / (1 - the product of all beta1 so far, this one too) */
  float correction; /* 1 / sqrt(1 - the product of all beta2 so far, this one too) */
  float epsilon;
  float decay;    /* learning rate * weight decay */
  float* weights; /* `count` of each */
  const float* gradient;
  float* first_moment;
  float* second_moment;
  uint64_t count;
} pliant_adamw_t;
PLIANT_API int32_t pliant_adamw(const pliant_adamw_t* update, pliant_error_t* error); /* [any] */
PLIANT_API int32_t pliant_stream_adamw(pliant_stream_t* stream, const pliant_adamw_t* update,
                                       pliant_error_t* error); /* [serial] */

/* The squared norm of `count` floats, which are `part_count` arrays one behind the other, such as the parameters of a
 * model, of parts[i] floats each; part_count 0: they are one. [any] */
PLIANT_API int32_t pliant_squared_norm(const float* values, uint64_t count, const uint64_t* parts, uint64_t part_count,
                                       double* norm, pliant_error_t* error);
/* Waits for what was enqueued on the stream. [serial] */
PLIANT_API int32_t pliant_stream_squared_norm(pliant_stream_t* stream, const float* values, uint64_t count,
                                              const uint64_t* parts, uint64_t part_count, double* norm,
                                              pliant_error_t* error);
enum { PLIANT_FLOATS_OF_NORM = 1024 /* floats whose squares are added to one number first */ };
/* The numbers of the chunks of an array, the last of which may be short. `to` has room for all: count divided by
 * PLIANT_FLOATS_OF_NORM, rounded up. Chunks on any rank give the norm of the whole: pliant_sum_of_norms over those of
 * all, array by array, in order. [any] */
PLIANT_API int32_t pliant_squared_norms(double* to, const float* from, uint64_t count, pliant_error_t* error);
PLIANT_API int32_t pliant_stream_squared_norms(pliant_stream_t* stream, double* to, const float* from, uint64_t count,
                                               pliant_error_t* error); /* [serial] */
/* Adds the numbers of chunks along one fixed tree. [any] */
PLIANT_API int32_t pliant_sum_of_norms(const double* chunks, uint64_t count, double* sum, pliant_error_t* error);

/* ---- Communicator: what ranks exchange beside what a session exchanges for them, or without one. Collectives are
 * enqueued on a stream and return at once; every rank makes the same ones in the same order. dtype is PLIANT_DTYPE_...,
 * op PLIANT_REDUCE_.... An accelerator without collectives of its own gets generic ones, carried by `host` where it is
 * found. What a call reads or writes stays until the stream has run it. ---- */

typedef struct pliant_communicator_t pliant_communicator_t;

enum { PLIANT_COMMUNICATOR_ID_BYTES = 128 };

/* Names a communicator of `world_size` ranks: made by one of them, carried to the others by any means, used once. `id`
 * has PLIANT_COMMUNICATOR_ID_BYTES. The accelerator is kept until that rank's communicator is made. [any] */
PLIANT_API int32_t pliant_communicator_make_id(const pliant_accelerator_t* accelerator, int32_t world_size, uint8_t* id,
                                               pliant_error_t* error);
/* Begins joining; collectives wait until all ranks have. [any] */
PLIANT_API int32_t pliant_communicator_make(const pliant_accelerator_t* accelerator, int32_t device, const uint8_t* id,
                                            int32_t rank, int32_t world_size, pliant_communicator_t** communicator,
                                            pliant_error_t* error);
/* No stream has work of it left, but where it was aborted. [serial] */
PLIANT_API int32_t pliant_communicator_free(pliant_communicator_t* communicator);
/* `rank` and `world_size` may be NULL. [any] */
PLIANT_API int32_t pliant_communicator_look(const pliant_communicator_t* communicator, int32_t* rank,
                                            int32_t* world_size, pliant_error_t* error);
/* Waits until every rank has joined: PLIANT_ABORTED, PLIANT_PEER_LOST, or PLIANT_DEADLINE_EXCEEDED after timeout_ms;
 * -1: no limit. [serial] */
PLIANT_API int32_t pliant_communicator_wait_ready(pliant_communicator_t* communicator, int32_t timeout_ms,
                                                  pliant_error_t* error);
/* Every present and later wait on it, in this process, ends with PLIANT_ABORTED; also while a call on it is under way.
 * [any] */
PLIANT_API int32_t pliant_communicator_abort(pliant_communicator_t* communicator, pliant_error_t* error);

/* A communicator without these ranks, ascending, which may be lost: each rank that stays calls it with the same list
 * and the same id. Ranks close the gaps in their old order. `communicator` takes no more calls but free. [serial] */
PLIANT_API int32_t pliant_communicator_shrink(pliant_communicator_t* communicator, const int32_t* without,
                                              uint64_t count, const uint8_t* id, pliant_communicator_t** shrunk,
                                              pliant_error_t* error);
/* An id for grow and join, made by one of the ranks of this one. [serial] */
PLIANT_API int32_t pliant_communicator_make_grow_id(pliant_communicator_t* communicator, int32_t world_size,
                                                    uint8_t* id, pliant_error_t* error);
/* A communicator with more ranks: those of this one keep theirs, new ones call join with those after. `communicator`
 * takes no more calls but free. [serial] */
PLIANT_API int32_t pliant_communicator_grow(pliant_communicator_t* communicator, const uint8_t* id, int32_t world_size,
                                            pliant_communicator_t** grown, pliant_error_t* error);
/* A rank that was not in the communicator that grows. [any] */
PLIANT_API int32_t pliant_communicator_join(const pliant_accelerator_t* accelerator, int32_t device, const uint8_t* id,
                                            int32_t rank, int32_t world_size, pliant_communicator_t** communicator,
                                            pliant_error_t* error);

/* A collective without data: `bytes` from `memory`, multiples of 4096 and as many on every rank, of
 * PLIANT_BUFFER_WINDOW, may from here on be exchanged without staging, where the accelerator can. They outlive the
 * communicator. [serial] */
PLIANT_API int32_t pliant_communicator_register_window(pliant_communicator_t* communicator, void* memory,
                                                       uint64_t bytes, pliant_stream_t* stream, pliant_error_t* error);
PLIANT_API int32_t pliant_communicator_all_reduce(pliant_communicator_t* communicator, const void* send, void* receive,
                                                  uint64_t count, int32_t dtype, int32_t op, pliant_stream_t* stream,
                                                  pliant_error_t* error); /* [serial] */
/* `count` elements of each rank. [serial] */
PLIANT_API int32_t pliant_communicator_all_gather(pliant_communicator_t* communicator, const void* send, void* receive,
                                                  uint64_t count, int32_t dtype, pliant_stream_t* stream,
                                                  pliant_error_t* error);
/* counts[r] elements of rank r, for each rank of the communicator. [serial] */
PLIANT_API int32_t pliant_communicator_all_gather_v(pliant_communicator_t* communicator, const void* send,
                                                    void* receive, const uint64_t* counts, uint64_t ranks,
                                                    int32_t dtype, pliant_stream_t* stream, pliant_error_t* error);
/* `count` elements to each rank. [serial] */
PLIANT_API int32_t pliant_communicator_reduce_scatter(pliant_communicator_t* communicator, const void* send,
                                                      void* receive, uint64_t count, int32_t dtype, int32_t op,
                                                      pliant_stream_t* stream, pliant_error_t* error);
PLIANT_API int32_t pliant_communicator_broadcast(pliant_communicator_t* communicator, void* memory, uint64_t count,
                                                 int32_t dtype, int32_t root, pliant_stream_t* stream,
                                                 pliant_error_t* error); /* [serial] */
PLIANT_API int32_t pliant_communicator_barrier(pliant_communicator_t* communicator, pliant_stream_t* stream,
                                               pliant_error_t* error); /* [serial] */
/* Every rank receives every piece at its place in the array `receive`; those of this rank lie one after another at
 * `send`, or, where that is NULL, in their places already. Piece i is rank ranks[i]'s: parts[2 * i + 1] elements from
 * element parts[2 * i] on; ascending and disjoint, the same on every rank. [serial] */
PLIANT_API int32_t pliant_communicator_gather_pieces(pliant_communicator_t* communicator, const void* send,
                                                     void* receive, const int32_t* ranks, const uint64_t* parts,
                                                     uint64_t pieces, int32_t dtype, pliant_stream_t* stream,
                                                     pliant_error_t* error);
/* The rank of each piece receives it from every other rank r with adds[r] set, of `adders`: one for each rank. Such a
 * rank has a whole array at `send`, any other NULL. `receive` has room for world_size - 1 times the elements of the own
 * pieces: of each other rank, in rank order, one piece after another. Nothing is added up. [serial] */
PLIANT_API int32_t pliant_communicator_scatter_pieces(pliant_communicator_t* communicator, const void* send,
                                                      void* receive, const int32_t* ranks, const uint64_t* parts,
                                                      uint64_t pieces, const uint8_t* adds, uint64_t adders,
                                                      int32_t dtype, pliant_stream_t* stream, pliant_error_t* error);
/* One message to `peer`, or from it, of as many elements on both sides; messages that cross belong into a group.
 * [serial] */
PLIANT_API int32_t pliant_communicator_send(pliant_communicator_t* communicator, const void* memory, uint64_t count,
                                            int32_t dtype, int32_t peer, pliant_stream_t* stream,
                                            pliant_error_t* error);
PLIANT_API int32_t pliant_communicator_receive(pliant_communicator_t* communicator, void* memory, uint64_t count,
                                               int32_t dtype, int32_t peer, pliant_stream_t* stream,
                                               pliant_error_t* error); /* [serial] */
/* Calls between the two are enqueued by end_group, on one stream, which is freed after it: collectives in their order,
 * then all messages at once. [serial] */
PLIANT_API int32_t pliant_communicator_begin_group(pliant_communicator_t* communicator, pliant_error_t* error);
PLIANT_API int32_t pliant_communicator_end_group(pliant_communicator_t* communicator,
                                                 pliant_error_t* error); /* [serial] */

/* ---- Sharded model: parameters, gradients and optimizer state cut over the ranks of a job. A parameter is whole on a
 * rank only while the rank uses it; the coordinator that [coordinator] names decides when. The weights that a rank owns
 * are f32, and so are sums of gradients and optimizer state. Every rank makes the same calls in the same order.
 *
 *   must(pliant_sharded_make(session, states, state_count, &model, &error));
 *   must(pliant_sharded_add_parameter(model, &weights, &weight, &error));
 *   must(pliant_sharded_add_module(model, &root, &module, &error));    the first one is the root
 *   must(pliant_session_start_sharded(session, dataset, model, NULL, &error));
 *   for (must(next(session, &step, &error)); step.batch != NULL; must(next(session, &step, &error))) {
 *     must(pliant_session_attempt(session, passes, context, &computed, &error));
 *     if (!computed) continue;                                         the group changed
 *     must(pliant_session_commit(session, &committed, &error));
 *     if (committed.is_committed) must(pliant_sharded_update(model, apply, context, &error));
 *   }
 * and, in `passes`, for each micro-batch m, also for one without rows:
 *     pliant_sharded_begin_pass(model, step.micro_batches + 2 * m, 1, &error)
 *     pliant_sharded_enter(model, module, PLIANT_DIRECTION_FORWARD, &error)
 *     pliant_sharded_value(model, weight, PLIANT_DTYPE_F32, &memory, &error)       ... leave, then backward
 *     pliant_sharded_end_pass(model, &error)
 *     pliant_session_add(session, m, loss, NULL, 0, &error)
 *
 * [serial] on a sharded model also takes calls that the program makes in a callback of another one, on its thread. ----
 */

typedef struct pliant_sharded_t pliant_sharded_t;

/* PLIANT_OK where the coordinator of the config can be run here. Nothing is looked at where `config` was opened without
 * the need "coordinator". [any] */
PLIANT_API int32_t pliant_sharded_check(const pliant_config_t* config, pliant_error_t* error);
/* `states`: names of what the optimizer keeps for each weight, in f32. PLIANT_FAILED_PRECONDITION, exit code 2, where
 * the config of the session has no [coordinator], or it has a model already. [maker] */
PLIANT_API int32_t pliant_sharded_make(pliant_session_t* session, const char* const* states, uint64_t state_count,
                                       pliant_sharded_t** model, pliant_error_t* error);
/* One that a session was started with is there for it until pliant_session_free, after which a model takes this call
 * alone. Not in a callback. [maker] */
PLIANT_API int32_t pliant_sharded_free(pliant_sharded_t* model);

enum {
  PLIANT_SHARDED_FROZEN = 1,     /* has no gradient */
  PLIANT_SHARDED_PERSISTENT = 2, /* the coordinator may keep it whole between its uses */
  PLIANT_SHARDED_EXTERNAL = 4    /* used by modules that do not name it: kept until the end of the step */
};

typedef struct pliant_sharded_parameter_t {
  uint32_t struct_size;
  uint32_t flags;   /* PLIANT_SHARDED_... */
  const char* name; /* unique; letters, digits and any of ".-_/:" */
  uint64_t dimensions;
  const int64_t* shape;
  /* Writes the first values, all of them, and returns PLIANT_OK or another status: called for one parameter after the
   * other, on every rank, by pliant_session_next, also when a job begins anew; `context` is in use until
   * pliant_session_free. */
  int32_t (*initialise)(void* context, float* values, uint64_t count);
  void* context;
} pliant_sharded_parameter_t;

typedef struct pliant_sharded_module_t {
  uint32_t struct_size;
  uint32_t is_leaf; /* 1: whole with all below it; modules below are not entered */
  const char* name;
  const uint32_t* parent; /* number of a module; NULL: none, as of the first one, the root */
  const uint32_t* own;    /* numbers of parameters; another module may have the same one: it is shared */
  uint64_t own_count;
  const uint32_t* external; /* of other modules, used by this one too */
  uint64_t external_count;
} pliant_sharded_module_t;

/* Numbers of parameters and of modules, from 0. Before pliant_session_start_sharded. [serial] */
PLIANT_API int32_t pliant_sharded_add_parameter(pliant_sharded_t* model, const pliant_sharded_parameter_t* parameter,
                                                uint32_t* number, pliant_error_t* error);
PLIANT_API int32_t pliant_sharded_add_module(pliant_sharded_t* model, const pliant_sharded_module_t* module,
                                             uint32_t* number, pliant_error_t* error); /* [serial] */
/* Gives a module the parameters of `module`, whose other fields are left alone; between two passes, on every rank
 * alike. [serial] */
PLIANT_API int32_t pliant_sharded_set_parameters(pliant_sharded_t* model, uint32_t number,
                                                 const pliant_sharded_module_t* module, pliant_error_t* error);
/* The number of the parameter of that name; PLIANT_NOT_FOUND. [serial] */
PLIANT_API int32_t pliant_sharded_find(pliant_sharded_t* model, const char* name, uint32_t* number,
                                       pliant_error_t* error);
/* Has the first values come from a .safetensors file, or the index or folder of several, each from the tensor of its
 * name. After the parameters were added and before the start; changes nothing where it fails, with exit code 2.
 * [serial] */
PLIANT_API int32_t pliant_sharded_import(pliant_sharded_t* model, const char* file, pliant_error_t* error);

/* pliant_session_start with a model all of whose parameters and modules were added. `rest`: what the program keeps
 * beside it, without arrays and with gradient_size 0; may be NULL. [maker] */
PLIANT_API int32_t pliant_session_start_sharded(pliant_session_t* session, const pliant_dataset_t* dataset,
                                                pliant_sharded_t* model, const pliant_state_t* rest,
                                                pliant_error_t* error);
/* Runs `work`, the passes of the step in hand, in this call; also what all ranks do after its commit, such as an
 * evaluation. It returns PLIANT_OK, or the status of the call of it that failed, at once. *computed is 0 where the
 * group changed meanwhile: call pliant_session_next then, also where a commit came before and its update did not. Any
 * other status of `work` gives up the passes and is that of this call, or PLIANT_INTERNAL for a number that is none; a
 * program that goes on calls pliant_session_next, which has all ranks make the step again. [maker] */
PLIANT_API int32_t pliant_session_attempt(pliant_session_t* session, int32_t (*work)(void* context), void* context,
                                          int32_t* computed, pliant_error_t* error);

enum { PLIANT_DIRECTION_FORWARD = 0, PLIANT_DIRECTION_BACKWARD = 1, PLIANT_DIRECTION_RECOMPUTE = 2 };

/* Begins forward and backward over the next `count` micro-batches of the step, first row and number of rows of each.
 * Over several each module is visited once for all of them, with pliant_sharded_begin_micro_batch for each backward.
 * One without rows keeps the ranks together: the modules are visited all the same. [serial] */
PLIANT_API int32_t pliant_sharded_begin_pass(pliant_sharded_t* model, const int64_t* micro_batches, uint64_t count,
                                             pliant_error_t* error);
/* From now on gradients are those of micro-batch `number` of the pass, from 0; in a pass over one it may be left out.
 * [serial] */
PLIANT_API int32_t pliant_sharded_begin_micro_batch(pliant_sharded_t* model, uint64_t number, pliant_error_t* error);
/* The whole pass over micro-batches without rows: modules are visited as in the last pass of this process with
 * gradients over as many, and nothing is computed. PLIANT_FAILED_PRECONDITION where there was none. [serial] */
PLIANT_API int32_t pliant_sharded_repeat_pass(pliant_sharded_t* model, const int64_t* micro_batches, uint64_t count,
                                              pliant_error_t* error);
/* *can is 1 where there was one. [serial] */
PLIANT_API int32_t pliant_sharded_can_repeat_pass(pliant_sharded_t* model, uint64_t count, int32_t* can,
                                                  pliant_error_t* error);
/* Begins a pass without gradients; all ranks take part. [serial] */
PLIANT_API int32_t pliant_sharded_begin_evaluation(pliant_sharded_t* model, pliant_error_t* error);
/* All that the module uses is whole when it returns, or will be for work that is enqueued on the session's stream from
 * then on. Modules nest, but backward the one around may be left before those in it. [serial] */
PLIANT_API int32_t pliant_sharded_enter(pliant_sharded_t* model, uint32_t module, int32_t direction,
                                        pliant_error_t* error);
PLIANT_API int32_t pliant_sharded_leave(pliant_sharded_t* model, uint32_t module, int32_t direction,
                                        pliant_error_t* error); /* [serial] */
/* Refused while a module is entered. [serial] */
PLIANT_API int32_t pliant_sharded_end_pass(pliant_sharded_t* model, pliant_error_t* error);

/* The value, while it is whole: between enter and leave of a module that uses it; it may lie elsewhere at the next
 * enter. `dtype`: the type that the program expects, refused with exit code 2 where [coordinator] compute_dtype is
 * another; 0: either. In memory of the rank's device. [serial] */
PLIANT_API int32_t pliant_sharded_value(pliant_sharded_t* model, uint32_t parameter, int32_t dtype, const void** value,
                                        pliant_error_t* error);
/* A buffer for its whole gradient, likewise of [coordinator] reduce_dtype, zeros at first in each micro-batch; the
 * program adds to it until it leaves, backward, the last of the modules that used it in the pass. [serial] */
PLIANT_API int32_t pliant_sharded_gradient(pliant_sharded_t* model, uint32_t parameter, int32_t dtype, void** gradient,
                                           pliant_error_t* error);
/* By hand, outside of passes, in the same order on every rank. prefetch begins to gather; after fetch it is whole until
 * release, or until an update, or the group changes. [serial] */
PLIANT_API int32_t pliant_sharded_prefetch(pliant_sharded_t* model, uint32_t parameter, pliant_error_t* error);
PLIANT_API int32_t pliant_sharded_fetch(pliant_sharded_t* model, uint32_t parameter,
                                        pliant_error_t* error); /* [serial] */
PLIANT_API int32_t pliant_sharded_release(pliant_sharded_t* model, uint32_t parameter,
                                          pliant_error_t* error); /* [serial] */

/* After a commit, before pliant_session_next: the squared norm of the mean gradient, the same bits on every rank and at
 * every world size. PLIANT_FAILED_PRECONDITION at any other time, and after a skipped step. [serial] */
PLIANT_API int32_t pliant_sharded_squared_gradient_norm(pliant_sharded_t* model, double* norm, pliant_error_t* error);

/* A run of elements of one parameter that this rank owns, in memory of its device; borrowed while it is shown. */
typedef struct pliant_shard_t {
  uint32_t struct_size;
  uint32_t parameter;
  uint64_t first; /* element of the parameter */
  uint64_t count;
  float* weights;
  const float* gradient; /* mean over the loss tokens of the global batch */
  float* const* states;  /* one for each name that the model was made with */
  uint64_t state_count;
} pliant_shard_t;
/* Once after each commit with is_committed: calls `each` for every run that this rank owns and that is not frozen, in
 * order. PLIANT_FAILED_PRECONDITION at any other time. Where `each` returns another status than PLIANT_OK, that is the
 * call's, or PLIANT_INTERNAL for a number that is none: some weights are new then and some are not, and the process is
 * to end. [serial] */
PLIANT_API int32_t pliant_sharded_update(pliant_sharded_t* model,
                                         int32_t (*each)(void* context, const pliant_shard_t* shard), void* context,
                                         pliant_error_t* error);

/* Copies the whole value, in the f32 of its owners, to `to`, which has room for `count` elements: all of them. Outside
 * of passes; all ranks take part. [serial] */
PLIANT_API int32_t pliant_sharded_read(pliant_sharded_t* model, uint32_t parameter, float* to, uint64_t count,
                                       pliant_error_t* error);
/* Gives it the value that all ranks have in `values`, all of its elements. Outside of passes and not between a commit
 * and its update; every rank. [serial] */
PLIANT_API int32_t pliant_sharded_write(pliant_sharded_t* model, uint32_t parameter, const float* values,
                                        uint64_t count, pliant_error_t* error);
/* Writes all parameters, f32, as a .safetensors file, on rank 0; all ranks take part. [serial] */
PLIANT_API int32_t pliant_sharded_export(pliant_sharded_t* model, const char* file, pliant_error_t* error);

/* Bytes of this rank by kind. */
typedef struct pliant_sharded_facts_t {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t compute_dtype; /* of what is whole: PLIANT_DTYPE_F32 or _BF16, as [coordinator] says. Likewise: */
  int32_t reduce_dtype;  /* of gradients */
  uint64_t weights;
  uint64_t states;
  uint64_t sums;          /* of gradients that it owns */
  uint64_t gathered;      /* whole parameters, whole gradients and what is on its way, now */
  uint64_t gathered_most; /* the most of it at once, so far */
} pliant_sharded_facts_t;
PLIANT_API int32_t pliant_sharded_look(pliant_sharded_t* model, pliant_sharded_facts_t* facts,
                                       pliant_error_t* error); /* [serial] */

#ifdef __cplusplus
}
#endif
#endif
