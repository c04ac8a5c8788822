/* embed_c: a trainer in C, over libpliant. Start it with `pliant run`. It learns to continue waves: a sequence of l
 * tokens is a wave of its own, and from the three values before a token a small network says that of the token. */
#include <math.h>
#include <pliant.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kSequences = 600, kInputs = 4 /* three values and 1 */, kMostHidden = 64 };

static pliant_error_t error = PLIANT_INIT(pliant_error_t);

static void must(int32_t status) {
  if (status == PLIANT_OK) return;
  fprintf(stderr, "embed_c: %s\n", pliant_last_message(NULL));
  exit(error.exit_code == 0 ? 1 : error.exit_code);
}

typedef struct model {
  int hidden;
  int64_t size; /* hidden * kInputs weights of the first layer, then `hidden` of the second */
  float* weights;
  float* momentum;
  float* gradient; /* of a micro-batch */
} model;

static model make_model(int hidden, int64_t seed) {
  model made = {hidden, (int64_t)hidden * (kInputs + 1), NULL, NULL, NULL};
  made.weights = calloc((size_t)made.size, sizeof(float));
  made.momentum = calloc((size_t)made.size, sizeof(float));
  made.gradient = calloc((size_t)made.size, sizeof(float));
  if (made.weights == NULL || made.momentum == NULL || made.gradient == NULL) exit(1);
  for (int64_t i = 0; i < made.size; ++i) made.weights[i] = (float)((seed + i * 17) % 100) / 100 - 0.5F;
  return made;
}

static int32_t tokens_of(int64_t id) {
  return (int32_t)(5 + id * 37 % 29);
}

static float value_of(int64_t id, int64_t token) {
  return sinf(0.2F * (float)(1 + id % 5) * (float)token + (float)id);
}

/* Adds the gradient of the summed loss of a sequence, and returns that loss. */
static double learn(model* m, int64_t id) {
  double loss = 0;
  for (int64_t token = 0; token < tokens_of(id); ++token) {
    const float x[kInputs] = {value_of(id, token - 3), value_of(id, token - 2), value_of(id, token - 1), 1};
    float hidden[kMostHidden];
    float said = 0;
    const float* const second = m->weights + m->hidden * kInputs;
    for (int j = 0; j < m->hidden; ++j) {
      float sum = 0;
      for (int k = 0; k < kInputs; ++k) sum += m->weights[j * kInputs + k] * x[k];
      hidden[j] = tanhf(sum);
      said += second[j] * hidden[j];
    }
    const float off = said - value_of(id, token);
    loss += 0.5 * (double)off * (double)off;
    for (int j = 0; j < m->hidden; ++j) {
      m->gradient[m->hidden * kInputs + j] += off * hidden[j];
      const float slope = off * second[j] * (1 - hidden[j] * hidden[j]);
      for (int k = 0; k < kInputs; ++k) m->gradient[j * kInputs + k] += slope * x[k];
    }
  }
  return loss;
}

static void apply(model* m, const float* mean_gradient, float rate) {
  for (int64_t i = 0; i < m->size; ++i) {
    m->momentum[i] = 0.9F * m->momentum[i] + mean_gradient[i];
    m->weights[i] -= rate * m->momentum[i];
  }
}

static pliant_dataset_t* waves(void) {
  int32_t tokens[kSequences];
  for (int64_t id = 0; id < kSequences; ++id) tokens[id] = tokens_of(id);
  pliant_lengths_t lengths = PLIANT_INIT(pliant_lengths_t);
  lengths.count = kSequences;
  lengths.lengths = tokens; /* copied */
  lengths.content = 1;      /* of these waves: a worker that has others is named */
  pliant_dataset_t* dataset = NULL;
  must(pliant_dataset_make(&lengths, &dataset, &error));
  return dataset;
}

/* The model as the session keeps it, copies it to workers that join, and puts it into snapshots. */
static void start(pliant_session_t* session, model* m) {
  pliant_state_array_t arrays[2] = {PLIANT_INIT(pliant_state_array_t), PLIANT_INIT(pliant_state_array_t)};
  const char* const names[2] = {"weights", "momentum"};
  float* const memory[2] = {m->weights, m->momentum};
  for (int i = 0; i < 2; ++i) {
    arrays[i].dtype = PLIANT_DTYPE_F32;
    arrays[i].name = names[i];
    arrays[i].memory = memory[i];
    arrays[i].dimensions = 1;
    arrays[i].shape = &m->size;
  }
  pliant_state_t state = PLIANT_INIT(pliant_state_t);
  state.gradient_size = (uint64_t)m->size;
  state.arrays = arrays;
  state.array_count = 2;
  pliant_dataset_t* const dataset = waves();
  must(pliant_session_start(session, dataset, &state, &error));
  must(pliant_dataset_free(dataset));
}

static void train(pliant_session_t* session, model* m) {
  pliant_step_t step = PLIANT_INIT(pliant_step_t);
  for (must(pliant_session_next(session, &step, &error)); step.batch != NULL;
       must(pliant_session_next(session, &step, &error))) {
    pliant_batch_view_t batch = PLIANT_INIT(pliant_batch_view_t);
    must(pliant_batch_look(step.batch, &batch, &error));
    for (uint64_t micro = 0; micro < step.micro_batch_count; ++micro) {
      const int64_t* const rows = step.micro_batches + 2 * micro; /* the first, and how many */
      double loss = 0;
      memset(m->gradient, 0, (size_t)m->size * sizeof(float));
      for (uint64_t i = batch.offsets[rows[0]]; i < batch.offsets[rows[0] + rows[1]]; ++i)
        loss += learn(m, batch.ids[i]);
      must(pliant_session_add(session, micro, loss, m->gradient, (uint64_t)m->size, &error));
    }
    pliant_committed_t committed = PLIANT_INIT(pliant_committed_t);
    must(pliant_session_commit(session, &committed, &error));
    if (committed.is_committed) apply(m, committed.gradient, (float)step.learning_rate);
  }
}

int main(void) {
  must(pliant_log_to_stderr(PLIANT_LEVEL_WARNING, &error));
  must(pliant_leave_stop_signals_to_agent());
  must(pliant_check_version(PLIANT_VERSION));
  pliant_session_t* session = NULL;
  pliant_config_t* config = NULL;
  int64_t hidden = 0;
  pliant_run_options_t run = PLIANT_INIT(pliant_run_options_t);
  must(pliant_session_attach(&session, &error));
  must(pliant_session_config(session, &config, &error));
  must(pliant_config_app_int(config, "hidden", 16, &hidden, &error));
  must(pliant_config_run(config, &run, &error));
  must(pliant_config_free(config));
  if (hidden < 1 || hidden > kMostHidden) return 2;
  model m = make_model((int)hidden, run.seed);
  start(session, &m);
  train(session, &m);
  must(pliant_session_free(session)); /* before the arrays of the state */
  free(m.weights), free(m.momentum), free(m.gradient);
  return 0;
}
