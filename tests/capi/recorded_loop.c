/* Rank 0 of a loop of one's own in C that keeps a record: what it leaves is a run that `pliant audit` reads.
 *
 *   recorded_loop WORLD_SIZE STEPS [RUN]    goes on with the run in the folder RUN; says the run's folder
 *   recorded_loop audit RUN                 says whether each sample was used once
 */
#include <inttypes.h>
#include <pliant.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pliant_error_t error = PLIANT_INIT(pliant_error_t);

static void must(int32_t status) {
  if (status == PLIANT_OK) return;
  fprintf(stderr, "recorded_loop: %s\n", pliant_last_message(NULL));
  exit(error.exit_code == 0 ? 1 : error.exit_code);
}

static const char* const kConfig =
    "config_version = 1\n"
    "[run]\nepochs = 2\n"
    "[elasticity]\nuse = \"exact\"\n"
    "[elasticity.exact]\nmax_train_batch_size = 12\nmicro_batch_sizes = [2]\nmax_gpus = 6\n"
    "[sampler]\nuse = \"seqlen\"\n[sampler.seqlen]\nmax_tokens = 64\n"
    "[lr]\nuse = \"linear\"\nbase_lr = 0.01\nunit = \"tokens\"\nbase_batch = 500\n";

/* What the program trains, and where it is: both go into one snapshot. */
typedef struct checkpoint {
  float weights[64];
  char position[1024];
  uint64_t position_bytes;
} checkpoint;

typedef struct job {
  pliant_config_t* config;
  pliant_plan_t* plan;
  pliant_batches_t* batches;
  pliant_learning_rate_t* rate;
  pliant_sharing_t sharing;
} job;

static job make_job(int64_t world_size) {
  job made = {NULL, NULL, NULL, NULL, PLIANT_INIT(pliant_sharing_t)};
  pliant_config_options_t options = PLIANT_INIT(pliant_config_options_t);
  options.needs = "elasticity sampler lr";
  must(pliant_config_parse(kConfig, strlen(kConfig), &options, &made.config, &error));
  must(pliant_plan_make(made.config, world_size, &made.plan, &error));
  int32_t tokens[90];
  for (int i = 0; i < 90; ++i) tokens[i] = 3 + i * 7 % 29;
  pliant_lengths_t lengths = PLIANT_INIT(pliant_lengths_t);
  lengths.count = 90;
  lengths.lengths = tokens;
  pliant_dataset_t* dataset = NULL;
  must(pliant_dataset_make(&lengths, &dataset, &error));
  must(pliant_batches_make(made.config, made.plan, dataset, &made.batches, &error));
  must(pliant_dataset_free(dataset));
  must(pliant_learning_rate_make(made.config, NULL, &made.rate, &error));
  pliant_plan_facts_t facts = PLIANT_INIT(pliant_plan_facts_t);
  must(pliant_plan_look(made.plan, &facts, &error));
  made.sharing.world_size = world_size;
  made.sharing.micro_batch = facts.micro_batch;
  made.sharing.granule = facts.granule;
  return made;
}

/* Begins a record, or goes on with the one in `run`; `kept` is what the newest snapshot has. */
static pliant_record_t* start(job* j, const char* run, checkpoint* kept) {
  pliant_record_t* record = NULL;
  if (run == NULL) {
    must(pliant_record_begin(j->config, j->plan, j->batches, &record, &error));
  } else {
    pliant_restored_t from = PLIANT_INIT(pliant_restored_t);
    must(pliant_record_open(run, j->config, j->plan, j->batches, &record, &error));
    must(pliant_record_restore(record, &from, &error)); /* what was committed after the snapshot is void */
    if (from.step > 0) {
      if (from.bytes != sizeof(*kept)) exit(1);
      memcpy(kept, from.state, sizeof(*kept));
      must(pliant_batches_load(j->batches, kept->position, kept->position_bytes, &error));
      must(pliant_learning_rate_load(j->rate, from.lr_state, from.lr_bytes, &error));
    }
  }
  must(pliant_record_start_generation(record, j->sharing.world_size, run == NULL ? "start" : "restarted", &error));
  return record;
}

/* All ranks have reduced the gradient of `batch`: the step is final once commit has returned, and the optimizers apply.
 */
static void commit(job* j, pliant_record_t* record, const pliant_batch_t* batch, int64_t step) {
  pliant_batch_size_t size = PLIANT_INIT(pliant_batch_size_t);
  pliant_scaling_t scaling = PLIANT_INIT(pliant_scaling_t);
  pliant_assignment_t* shares = NULL; /* what each rank computed */
  must(pliant_batch_size(batch, &size, &error));
  must(pliant_learning_rate_scaling(j->rate, step, &size, 0, &scaling, &error));
  must(pliant_share_out(size.rows, &j->sharing, &shares, &error));
  must(pliant_record_commit(record, batch, shares, 1.0 / (double)(step + 1), scaling.learning_rate, &error));
  must(pliant_learning_rate_commit(j->rate, step, &size, NULL, 0, &error));
  must(pliant_assignment_free(shares));
}

static void keep(job* j, pliant_record_t* record, checkpoint* now) {
  char rate[256];
  uint64_t rate_bytes = 0;
  must(pliant_batches_save(j->batches, now->position, sizeof(now->position), &now->position_bytes, &error));
  must(pliant_learning_rate_save(j->rate, rate, sizeof(rate), &rate_bytes, &error));
  must(pliant_record_keep_snapshot(record, now, sizeof(*now), rate, rate_bytes, &error));
}

static int audit(const char* run) {
  pliant_audit_t found = PLIANT_INIT(pliant_audit_t);
  must(pliant_audit_run(run, &found, &error));
  printf("%" PRId64 " steps, %" PRId64 " of %" PRId64 " samples used once, %s\n", found.steps, found.samples_used_once,
         found.samples_expected, found.is_whole ? "whole" : "not whole");
  return found.is_whole ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  if (strcmp(argv[1], "audit") == 0) return audit(argv[2]);
  job j = make_job(strtoll(argv[1], NULL, 10));
  static checkpoint now;
  pliant_record_t* const record = start(&j, argc > 3 ? argv[3] : NULL, &now);
  for (int64_t left = strtoll(argv[2], NULL, 10); left > 0; --left) {
    pliant_batch_t* batch = NULL;
    pliant_record_facts_t facts = PLIANT_INIT(pliant_record_facts_t);
    must(pliant_record_look(record, &facts, &error));
    must(pliant_batches_next(j.batches, &batch, &error));
    if (batch == NULL) break;
    commit(&j, record, batch, facts.steps);
    now.weights[0] += 1; /* the optimizer */
    if (facts.steps % 2 == 0) keep(&j, record, &now);
    must(pliant_batch_free(batch));
  }
  pliant_record_facts_t facts = PLIANT_INIT(pliant_record_facts_t);
  must(pliant_record_look(record, &facts, &error));
  printf("%" PRId64 " steps of %.0f updates in %s\n", facts.steps, (double)now.weights[0], facts.directory);
  must(pliant_record_free(record));
  must(pliant_learning_rate_free(j.rate));
  must(pliant_batches_free(j.batches));
  must(pliant_plan_free(j.plan));
  must(pliant_config_free(j.config));
  return 0;
}
