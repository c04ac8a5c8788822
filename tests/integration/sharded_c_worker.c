/* A trainer in C whose model is cut over the ranks: the model of sharded_worker.cpp, element by element, so that both
 * end with the same bits. [app] averages, evaluates and first_weights are as there; by_hand fetches and checks a
 * parameter after each update, export_at writes the weights after a step, repeats has ranks without rows repeat a pass,
 * fail_at has one rank of a step end its passes with a status of its own, leave_at has it ask for the next step within
 * a pass, tries_wrong makes calls that are refused. The process that makes the file `once` ends its first call of the
 * callback `breaks`, "initialise" or "each", with a number that is no status. */
#include <inttypes.h>
#include <pliant.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kSequences = 1000, kMostLayers = 8, kFrozen = 7 };

static pliant_error_t error = PLIANT_INIT(pliant_error_t);

static void must(int32_t status) {
  if (status == PLIANT_OK) return;
  fprintf(stderr, "sharded_c_worker: %s\n", pliant_last_message(NULL));
  exit(error.exit_code == 0 ? 1 : error.exit_code);
}

typedef struct worker {
  pliant_session_t* session;
  pliant_config_t* config; /* has the texts below */
  pliant_sharded_t* shards;
  pliant_step_t step;
  pliant_batch_view_t batch;
  int layers;
  uint64_t width;
  uint32_t frozen, root;
  uint32_t weights[kMostLayers], modules[kMostLayers];
  const char *export_to, *first_weights, *breaks, *once;
  int32_t averages, evaluates, by_hand, repeats, tries_wrong;
  int64_t export_at, fail_at, leave_at;
  int has_failed; /* by fail_at */
  float* whole;
} worker;

static int32_t length_of(int64_t id) {
  return (int32_t)(3 + (id * 37) % 29);
}

static float target_of(int64_t id, uint64_t element) {
  return (float)(((uint64_t)id * 7919 + element * 104729) % 2003) / 2003.0F;
}

static int is_wrong(const worker* w, const char* name) {
  FILE* const made = strcmp(w->breaks, name) == 0 ? fopen(w->once, "wx") : NULL;
  if (made == NULL) return 0;
  fclose(made);
  return 1;
}

static int32_t first_values(void* context, float* values, uint64_t count) {
  if (is_wrong(context, "initialise")) return -7;
  for (uint64_t k = 0; k < count; ++k) values[k] = (float)(k * 17 % 1000) / 1000;
  return PLIANT_OK;
}

static uint32_t add_parameter(worker* w, const char* name, int64_t elements, uint32_t flags) {
  pliant_sharded_parameter_t parameter = PLIANT_INIT(pliant_sharded_parameter_t);
  parameter.flags = flags;
  parameter.name = name;
  parameter.dimensions = 1;
  parameter.shape = &elements;
  parameter.initialise = first_values;
  parameter.context = w;
  uint32_t number = 0;
  must(pliant_sharded_add_parameter(w->shards, &parameter, &number, &error));
  return number;
}

static uint32_t add_module(worker* w, const char* name, const uint32_t* parent, const uint32_t* own) {
  pliant_sharded_module_t module = PLIANT_INIT(pliant_sharded_module_t);
  module.name = name;
  module.parent = parent;
  module.own = own;
  module.own_count = 1;
  uint32_t number = 0;
  must(pliant_sharded_add_module(w->shards, &module, &number, &error));
  return number;
}

static void build(worker* w) {
  const char* const states[1] = {"momentum"};
  must(pliant_sharded_make(w->session, states, 1, &w->shards, &error));
  char name[64];
  w->frozen = add_parameter(w, "frozen", kFrozen, PLIANT_SHARDED_FROZEN);
  for (int i = 0; i < w->layers; ++i) {
    snprintf(name, sizeof(name), "layer.%d.weights", i);
    w->weights[i] = add_parameter(w, name, (int64_t)w->width, 0);
  }
  w->root = add_module(w, "model", NULL, &w->frozen);
  for (int i = 0; i < w->layers; ++i) {
    snprintf(name, sizeof(name), "layer.%d", i);
    w->modules[i] = add_module(w, name, &w->root, &w->weights[i]);
  }
  uint32_t found = 0;
  must(pliant_sharded_find(w->shards, "layer.0.weights", &found, &error));
  if (found != w->weights[0] || pliant_sharded_find(w->shards, "none", &found, &error) != PLIANT_NOT_FOUND) exit(9);
  if (w->first_weights[0] != '\0') must(pliant_sharded_import(w->shards, w->first_weights, &error));
}

/* The rows of a micro-batch as entries of the batch. */
typedef struct entries {
  const int64_t* first;
  const int64_t* end;
} entries;

static entries entries_of(const worker* w, const int64_t* rows) {
  entries all = {NULL, NULL};
  if (rows[1] == 0) return all;
  all.first = w->batch.ids + w->batch.offsets[rows[0]];
  all.end = w->batch.ids + w->batch.offsets[rows[0] + rows[1]];
  return all;
}

#define TRY(call)                                           \
  do {                                                      \
    const int32_t status_of_call = (call);                  \
    if (status_of_call != PLIANT_OK) return status_of_call; \
  } while (0)

static int32_t forward(worker* w, entries of, float* scale, double* loss) {
  TRY(pliant_sharded_enter(w->shards, w->root, PLIANT_DIRECTION_FORWARD, &error));
  const void* value = NULL;
  TRY(pliant_sharded_value(w->shards, w->frozen, PLIANT_DTYPE_F32, &value, &error));
  *scale = ((const float*)value)[3];
  for (int i = 0; i < w->layers; ++i) {
    TRY(pliant_sharded_enter(w->shards, w->modules[i], PLIANT_DIRECTION_FORWARD, &error));
    TRY(pliant_sharded_value(w->shards, w->weights[i], PLIANT_DTYPE_F32, &value, &error));
    double sum = 0;
    for (const int64_t* id = of.first; id != of.end; ++id) {
      for (uint64_t k = 0; k < w->width; ++k) {
        const double off = (double)(((const float*)value)[k] - *scale * target_of(*id, k));
        sum += 0.5 * length_of(*id) * off * off / (double)w->width;
      }
    }
    *loss += sum;
    TRY(pliant_sharded_leave(w->shards, w->modules[i], PLIANT_DIRECTION_FORWARD, &error));
  }
  return pliant_sharded_leave(w->shards, w->root, PLIANT_DIRECTION_FORWARD, &error);
}

static int32_t backward(worker* w, entries of, float scale) {
  TRY(pliant_sharded_enter(w->shards, w->root, PLIANT_DIRECTION_BACKWARD, &error));
  for (int i = w->layers - 1; i >= 0; --i) {
    TRY(pliant_sharded_enter(w->shards, w->modules[i], PLIANT_DIRECTION_BACKWARD, &error));
    const void* value = NULL;
    void* gradient = NULL;
    TRY(pliant_sharded_value(w->shards, w->weights[i], PLIANT_DTYPE_F32, &value, &error));
    TRY(pliant_sharded_gradient(w->shards, w->weights[i], PLIANT_DTYPE_F32, &gradient, &error));
    for (const int64_t* id = of.first; id != of.end; ++id) {
      const float strength = (float)length_of(*id);
      for (uint64_t k = 0; k < w->width; ++k)
        ((float*)gradient)[k] += strength * (((const float*)value)[k] - scale * target_of(*id, k));
    }
    TRY(pliant_sharded_leave(w->shards, w->modules[i], PLIANT_DIRECTION_BACKWARD, &error));
  }
  return pliant_sharded_leave(w->shards, w->root, PLIANT_DIRECTION_BACKWARD, &error);
}

static pliant_dataset_t* sequences(void) {
  int32_t tokens[kSequences];
  for (int64_t id = 0; id < kSequences; ++id) tokens[id] = length_of(id);
  pliant_lengths_t lengths = PLIANT_INIT(pliant_lengths_t);
  lengths.count = kSequences;
  lengths.lengths = tokens;
  pliant_dataset_t* dataset = NULL;
  must(pliant_dataset_make(&lengths, &dataset, &error));
  return dataset;
}

static void try_wrong_calls(worker* w);

static int32_t passes(void* context) {
  worker* const w = context;
  if (w->tries_wrong != 0) try_wrong_calls(w);
  for (uint64_t micro = 0; micro < w->step.micro_batch_count; ++micro) {
    const int64_t* const rows = w->step.micro_batches + 2 * micro;
    double loss = 0;
    float scale = 0;
    int32_t can_repeat = 0;
    if (w->repeats != 0 && rows[1] == 0) TRY(pliant_sharded_can_repeat_pass(w->shards, 1, &can_repeat, &error));
    if (can_repeat != 0) {
      TRY(pliant_sharded_repeat_pass(w->shards, rows, 1, &error));
      TRY(pliant_session_metric(w->session, "repeated", 1, 0, PLIANT_METRIC_SUM, &error));
    } else {
      TRY(pliant_sharded_begin_pass(w->shards, rows, 1, &error));
      TRY(pliant_sharded_begin_micro_batch(w->shards, 0, &error));
      TRY(forward(w, entries_of(w, rows), &scale, &loss));
      if (w->step.index == w->fail_at && w->step.rank == 1) {
        w->fail_at = -1;
        w->has_failed = 1;
        return PLIANT_FAILED_PRECONDITION; /* the program's own, also where a call before failed with it */
      }
      TRY(backward(w, entries_of(w, rows), scale));
      TRY(pliant_sharded_end_pass(w->shards, &error));
    }
    TRY(pliant_session_add(w->session, micro, loss, NULL, 0, &error));
  }
  return PLIANT_OK;
}

static int32_t apply(void* context, const pliant_shard_t* shard) {
  const float rate = (float)((const worker*)context)->step.learning_rate;
  float* const momentum = shard->states[0];
  if (shard->state_count != 1) return PLIANT_INTERNAL;
  if (((const worker*)context)->step.index == 5 && is_wrong(context, "each")) return 99;
  for (uint64_t k = 0; k < shard->count; ++k) {
    momentum[k] = 0.9F * momentum[k] + shard->gradient[k];
    shard->weights[k] -= rate * momentum[k];
  }
  return PLIANT_OK;
}

static int32_t evaluate(worker* w) {
  TRY(pliant_sharded_begin_evaluation(w->shards, &error));
  for (int i = 0; i < w->layers; ++i) {
    TRY(pliant_sharded_enter(w->shards, w->modules[i], PLIANT_DIRECTION_FORWARD, &error));
    TRY(pliant_sharded_leave(w->shards, w->modules[i], PLIANT_DIRECTION_FORWARD, &error));
  }
  return pliant_sharded_end_pass(w->shards, &error);
}

/* What is frozen goes half the way to the first layer's weights. */
static int32_t average(worker* w) {
  float averages[kFrozen];
  TRY(pliant_sharded_read(w->shards, w->weights[0], w->whole, w->width, &error));
  TRY(pliant_sharded_read(w->shards, w->frozen, averages, kFrozen, &error));
  for (int k = 0; k < kFrozen; ++k) averages[k] += 0.5F * (w->whole[k] - averages[k]);
  return pliant_sharded_write(w->shards, w->frozen, averages, kFrozen, &error);
}

/* A parameter that is fetched is what is read of it. */
static int32_t fetch_by_hand(worker* w) {
  const uint32_t last = w->weights[w->layers - 1];
  const void* value = NULL;
  TRY(pliant_sharded_read(w->shards, last, w->whole, w->width, &error));
  TRY(pliant_sharded_prefetch(w->shards, last, &error));
  TRY(pliant_sharded_fetch(w->shards, last, &error));
  TRY(pliant_sharded_value(w->shards, last, 0, &value, &error));
  if (memcmp(value, w->whole, w->width * sizeof(float)) != 0) return PLIANT_INTERNAL;
  TRY(pliant_sharded_release(w->shards, last, &error));
  if (pliant_sharded_value(w->shards, last, PLIANT_DTYPE_BF16, &value, &error) != PLIANT_FAILED_PRECONDITION ||
      error.exit_code != 2)
    return PLIANT_INTERNAL; /* it is f32 */
  return PLIANT_OK;
}

static int32_t after_update(void* context) {
  worker* const w = context;
  if (pliant_session_free(w->session) != PLIANT_FAILED_PRECONDITION) exit(9); /* not in a callback */
  if (w->evaluates != 0) TRY(evaluate(w));
  if (w->averages != 0) TRY(average(w));
  if (w->by_hand != 0) TRY(fetch_by_hand(w));
  if (w->step.index == w->export_at) TRY(pliant_sharded_export(w->shards, w->export_to, &error));
  return PLIANT_OK;
}

static void train(worker* w) {
  for (must(pliant_session_next(w->session, &w->step, &error)); w->step.batch != NULL;
       must(pliant_session_next(w->session, &w->step, &error))) {
    must(pliant_batch_look(w->step.batch, &w->batch, &error));
    if (w->step.index == w->leave_at && w->step.rank == 1) {
      w->leave_at = -1;
      must(pliant_sharded_begin_pass(w->shards, w->step.micro_batches, 1, &error));
      must(pliant_sharded_enter(w->shards, w->root, PLIANT_DIRECTION_FORWARD, &error));
      continue;
    }
    int32_t computed = 0;
    const int32_t status = pliant_session_attempt(w->session, passes, w, &computed, &error);
    if (w->has_failed != 0) {
      w->has_failed = 0;
      if (status != PLIANT_FAILED_PRECONDITION) exit(9);
      fprintf(stderr, "sharded_c_worker: %s\n", error.message);
      continue;
    }
    must(status);
    if (computed == 0) continue;
    pliant_committed_t committed = PLIANT_INIT(pliant_committed_t);
    must(pliant_session_commit(w->session, &committed, &error));
    if (committed.is_committed == 0) continue;
    if (committed.gradient_size != 0) exit(9);
    double norm = 0;
    must(pliant_sharded_squared_gradient_norm(w->shards, &norm, &error));
    if (!(norm > 0)) exit(9);
    must(pliant_sharded_update(w->shards, apply, w, &error));
    if (pliant_sharded_update(w->shards, apply, w, &error) != PLIANT_FAILED_PRECONDITION) exit(9); /* once a commit */
    must(pliant_session_attempt(w->session, after_update, w, &computed, &error));
  }
}

static void read_app(worker* w) {
  must(pliant_session_config(w->session, &w->config, &error));
  const pliant_config_t* const config = w->config;
  int64_t layers = 0, width = 0;
  must(pliant_config_app_int(config, "layers", 3, &layers, &error));
  must(pliant_config_app_int(config, "width", 3000, &width, &error));
  must(pliant_config_app_int(config, "export_at", -1, &w->export_at, &error));
  must(pliant_config_app_int(config, "fail_at", -1, &w->fail_at, &error));
  must(pliant_config_app_int(config, "leave_at", -1, &w->leave_at, &error));
  must(pliant_config_app_bool(config, "averages", 0, &w->averages, &error));
  must(pliant_config_app_bool(config, "evaluates", 0, &w->evaluates, &error));
  must(pliant_config_app_bool(config, "by_hand", 0, &w->by_hand, &error));
  must(pliant_config_app_bool(config, "repeats", 0, &w->repeats, &error));
  must(pliant_config_app_bool(config, "tries_wrong", 0, &w->tries_wrong, &error));
  must(pliant_config_app_text(config, "export_to", "", &w->export_to, &error));
  must(pliant_config_app_text(config, "first_weights", "", &w->first_weights, &error));
  must(pliant_config_app_text(config, "breaks", "", &w->breaks, &error));
  must(pliant_config_app_text(config, "once", "", &w->once, &error));
  if (layers < 1 || layers > kMostLayers || width < kFrozen) exit(2);
  w->layers = (int)layers;
  w->width = (uint64_t)width;
  must(pliant_sharded_check(config, &error));
}

static void refused(int line, int32_t status, int32_t expected) {
  if (status == expected) return;
  fprintf(stderr, "sharded_c_worker: line %d: status %" PRId32 " in place of %" PRId32 "\n", line, status, expected);
  exit(9);
}
#define REFUSED(expected, call) refused(__LINE__, call, PLIANT_##expected)

/* Before the session is started. */
static void try_wrong_models(worker* w) {
  pliant_sharded_t* const shards = w->shards;
  pliant_sharded_t* second = NULL;
  const char* const states[2] = {"momentum", NULL};
  uint32_t number = 99;
  const int64_t shape[2] = {-1, 4};
  REFUSED(FAILED_PRECONDITION, pliant_sharded_make(w->session, states, 1, &second, &error));
  REFUSED(INVALID_ARGUMENT, pliant_sharded_make(w->session, states, 2, &second, &error));
  REFUSED(INVALID_ARGUMENT, pliant_sharded_make(w->session, NULL, 1, &second, &error));
  pliant_sharded_parameter_t parameter = PLIANT_INIT(pliant_sharded_parameter_t);
  REFUSED(INVALID_ARGUMENT, pliant_sharded_add_parameter(shards, &parameter, &number, &error));
  parameter.name = "more";
  REFUSED(INVALID_ARGUMENT, pliant_sharded_add_parameter(shards, &parameter, &number, &error)); /* no first values */
  parameter.initialise = first_values;
  parameter.dimensions = 1;
  REFUSED(INVALID_ARGUMENT, pliant_sharded_add_parameter(shards, &parameter, &number, &error)); /* no shape */
  parameter.shape = shape;
  REFUSED(INVALID_ARGUMENT, pliant_sharded_add_parameter(shards, &parameter, &number, &error));
  parameter.shape = shape + 1;
  parameter.flags = 1U << 20U;
  REFUSED(UNIMPLEMENTED, pliant_sharded_add_parameter(shards, &parameter, &number, &error));
  parameter.flags = 0;
  REFUSED(INVALID_ARGUMENT, pliant_sharded_add_parameter(shards, &parameter, NULL, &error));
  parameter.name = "frozen"; /* there is one */
  REFUSED(INVALID_ARGUMENT, pliant_sharded_add_parameter(shards, &parameter, &number, &error));
  pliant_sharded_module_t module = PLIANT_INIT(pliant_sharded_module_t);
  module.name = "second_root";
  REFUSED(INVALID_ARGUMENT, pliant_sharded_add_module(shards, &module, &number, &error));
  module.parent = &number;
  REFUSED(NOT_FOUND, pliant_sharded_add_module(shards, &module, &number, &error));
  module.parent = &w->root;
  module.own = &number;
  module.own_count = 1;
  REFUSED(INVALID_ARGUMENT, pliant_sharded_add_module(shards, &module, &number, &error));
  module.own_count = 0;
  module.is_leaf = 2;
  REFUSED(INVALID_ARGUMENT, pliant_sharded_add_module(shards, &module, &number, &error));
  REFUSED(NOT_FOUND, pliant_sharded_import(shards, "/nowhere.safetensors", &error));
  if (number != 99) exit(9);
  pliant_state_t rest = PLIANT_INIT(pliant_state_t);
  rest.gradient_size = 4;
  pliant_dataset_t* const dataset = sequences();
  REFUSED(INVALID_ARGUMENT, pliant_session_start_sharded(w->session, dataset, shards, &rest, &error));
  must(pliant_dataset_free(dataset));
}

/* Within the passes of a step, between two of them. */
static void try_wrong_calls(worker* w) {
  pliant_sharded_t* const shards = w->shards;
  const int64_t rows[2] = {-3, 1};
  const void* value = NULL;
  void* gradient = NULL;
  int32_t computed = 0;
  pliant_sharded_parameter_t late = PLIANT_INIT(pliant_sharded_parameter_t);
  uint32_t number = 0;
  late.name = "late";
  late.initialise = first_values;
  REFUSED(FAILED_PRECONDITION, pliant_sharded_add_parameter(shards, &late, &number, &error));
  REFUSED(FAILED_PRECONDITION, pliant_sharded_import(shards, "/nowhere.safetensors", &error));
  REFUSED(FAILED_PRECONDITION, pliant_session_start_sharded(w->session, NULL, shards, NULL, &error));
  REFUSED(INVALID_ARGUMENT, pliant_session_start_sharded(w->session, NULL, NULL, NULL, &error));
  REFUSED(INVALID_ARGUMENT, pliant_session_attempt(w->session, NULL, NULL, &computed, &error));
  REFUSED(INVALID_ARGUMENT, pliant_sharded_begin_pass(shards, rows, 1, &error));
  REFUSED(INVALID_ARGUMENT, pliant_sharded_begin_pass(shards, NULL, 1, &error));
  REFUSED(FAILED_PRECONDITION, pliant_sharded_end_pass(shards, &error));
  REFUSED(NOT_FOUND, pliant_sharded_enter(shards, 99, PLIANT_DIRECTION_FORWARD, &error));
  REFUSED(INVALID_ARGUMENT, pliant_sharded_enter(shards, w->root, 3, &error));
  REFUSED(FAILED_PRECONDITION, pliant_sharded_enter(shards, w->root, PLIANT_DIRECTION_FORWARD, &error));
  REFUSED(NOT_FOUND, pliant_sharded_value(shards, 99, 0, &value, &error));
  REFUSED(INVALID_ARGUMENT, pliant_sharded_value(shards, 0, 99, &value, &error));
  REFUSED(FAILED_PRECONDITION, pliant_sharded_value(shards, w->weights[0], 0, &value, &error));
  REFUSED(FAILED_PRECONDITION, pliant_sharded_gradient(shards, w->weights[0], 0, &gradient, &error));
  REFUSED(FAILED_PRECONDITION, pliant_sharded_update(shards, apply, w, &error));
  REFUSED(INVALID_ARGUMENT, pliant_sharded_update(shards, NULL, w, &error));
  REFUSED(INVALID_ARGUMENT, pliant_sharded_read(shards, w->weights[0], w->whole, w->width - 1, &error));
  REFUSED(INVALID_ARGUMENT, pliant_sharded_read(shards, w->weights[0], NULL, w->width, &error));
  REFUSED(INVALID_ARGUMENT, pliant_sharded_write(shards, w->weights[0], w->whole, 1, &error));
  REFUSED(NOT_FOUND, pliant_sharded_fetch(shards, 99, &error));
  REFUSED(NOT_FOUND, pliant_sharded_release(shards, 99, &error));
  REFUSED(INVALID_ARGUMENT, pliant_session_add(w->session, 999, 0, NULL, 0, &error));
}

/* The session's stream works on memory of the session's device, and is the session's to free. */
static void look_at_device(const worker* w) {
  pliant_accelerator_t* accelerator = NULL;
  pliant_stream_t* stream = NULL;
  pliant_buffer_t* buffer = NULL;
  pliant_accelerator_facts_t facts = PLIANT_INIT(pliant_accelerator_facts_t);
  const float values[2] = {1.5F, -3};
  float back[2] = {0, 0};
  void* memory = NULL;
  int32_t device = -1;
  must(pliant_session_accelerator(w->session, &accelerator, &error));
  must(pliant_accelerator_look(accelerator, &facts, &error));
  must(pliant_session_stream(w->session, &stream, &device, &error));
  if (device < 0 || device >= facts.devices) exit(9);
  must(pliant_buffer_make(accelerator, device, sizeof(values), PLIANT_BUFFER_DEVICE, &buffer, &error));
  must(pliant_buffer_look(buffer, &memory, NULL, &error));
  must(pliant_stream_copy(stream, memory, values, sizeof(values), &error));
  must(pliant_stream_copy(stream, back, memory, sizeof(values), &error));
  must(pliant_stream_synchronize(stream, &error));
  if (memcmp(values, back, sizeof(values)) != 0) exit(9);
  if (pliant_stream_free(stream) != PLIANT_FAILED_PRECONDITION) exit(9);
  must(pliant_buffer_free(buffer));
  must(pliant_accelerator_free(accelerator));
}

int main(void) {
  worker w = {.step = PLIANT_INIT(pliant_step_t), .batch = PLIANT_INIT(pliant_batch_view_t)};
  must(pliant_log_to_stderr(PLIANT_LEVEL_WARNING, &error));
  must(pliant_leave_stop_signals_to_agent());
  must(pliant_session_attach(&w.session, &error));
  read_app(&w);
  w.whole = malloc((size_t)w.width * sizeof(float));
  if (w.whole == NULL) return 1;
  build(&w);
  look_at_device(&w);
  if (w.tries_wrong != 0) try_wrong_models(&w);
  pliant_dataset_t* const dataset = sequences();
  must(pliant_session_start_sharded(w.session, dataset, w.shards, NULL, &error));
  must(pliant_dataset_free(dataset));
  train(&w);
  pliant_sharded_facts_t facts = PLIANT_INIT(pliant_sharded_facts_t);
  must(pliant_sharded_look(w.shards, &facts, &error));
  if (facts.compute_dtype != PLIANT_DTYPE_F32 || facts.gathered_most == 0) return 9;
  must(pliant_session_free(w.session)); /* in any order */
  if (pliant_sharded_look(w.shards, &facts, &error) != PLIANT_FAILED_PRECONDITION) return 9;
  must(pliant_sharded_free(w.shards));
  must(pliant_config_free(w.config));
  free(w.whole);
  return 0;
}
