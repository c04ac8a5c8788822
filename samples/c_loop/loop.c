/* A loop of one's own in C, as one rank of a group that somebody else starts, such as torchrun: its share of each
 * batch, padded, and the learning rate of the batch.
 *
 *   loop [POSITION [STEPS]]
 *
 * It goes on from the file POSITION where that is there, whatever the size of the group was that wrote it, makes STEPS
 * steps, or all that are left, and writes the file: the same bytes on every rank. */
#include <inttypes.h>
#include <pliant.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pliant_error_t error = PLIANT_INIT(pliant_error_t);

static void must(int32_t status) {
  if (status == PLIANT_OK) return;
  fprintf(stderr, "loop: %s\n", pliant_last_message(NULL)); /* all findings of a config, each with its place */
  exit(error.exit_code == 0 ? 1 : error.exit_code);
}

static int64_t from_environment(const char* name, int64_t otherwise) {
  const char* const text = getenv(name);
  return text == NULL ? otherwise : strtoll(text, NULL, 10);
}

/* Bytes of a file; 0 where there is none. */
static uint64_t read_file(const char* file, char* to, uint64_t room) {
  FILE* const in = file == NULL ? NULL : fopen(file, "rb");
  const uint64_t bytes = in == NULL ? 0 : fread(to, 1, room, in);
  if (in != NULL) fclose(in);
  return bytes;
}

static void write_file(const char* file, const char* from, uint64_t bytes) {
  FILE* const out = fopen(file, "wb");
  if (out == NULL || fwrite(from, 1, bytes, out) != bytes || fclose(out) != 0) exit(1);
}

static const char* const kConfig =
    "config_version = 1\n"
    "[run]\nepochs = 2\n"
    "[elasticity]\nuse = \"exact\"\n"
    "[elasticity.exact]\nmax_train_batch_size = 12\nmicro_batch_sizes = [2]\nmax_gpus = 6\n"
    "[sampler]\nuse = \"seqlen\"\n[sampler.seqlen]\nmax_tokens = 64\n"
    "[lr]\nuse = \"linear\"\nbase_lr = 0.01\nunit = \"tokens\"\nbase_batch = 500\n";

int main(int argc, char** argv) {
  const int64_t rank = from_environment("RANK", 0), world_size = from_environment("WORLD_SIZE", 1);
  const char* const position = argc > 1 ? argv[1] : NULL;
  int64_t steps_left = argc > 2 ? strtoll(argv[2], NULL, 10) : INT64_MAX;
  must(pliant_check_version(PLIANT_VERSION));

  pliant_config_options_t options = PLIANT_INIT(pliant_config_options_t);
  options.needs = "elasticity sampler lr"; /* sections whose plugins will be asked */
  pliant_config_t* config = NULL;
  must(pliant_config_parse(kConfig, strlen(kConfig), &options, &config, &error));
  pliant_planner_t* planner = NULL;
  pliant_plan_t* plan = NULL;
  must(pliant_planner_make(config, &planner, &error));
  must(
      pliant_planner_plan(planner, world_size, &plan, &error)); /* refuses a size that is not valid, with the nearest */
  pliant_plan_facts_t facts = PLIANT_INIT(pliant_plan_facts_t);
  must(pliant_plan_look(plan, &facts, &error));

  int32_t tokens[90];
  for (int i = 0; i < 90; ++i) tokens[i] = 3 + i * 7 % 29;
  pliant_lengths_t lengths = PLIANT_INIT(pliant_lengths_t);
  lengths.count = 90;
  lengths.lengths = tokens; /* copied, for there is no `release` */
  pliant_dataset_t* dataset = NULL;
  pliant_batches_t* batches = NULL;
  pliant_learning_rate_t* rate = NULL;
  must(pliant_dataset_make(&lengths, &dataset, &error));
  char saved[1024];
  uint64_t bytes = read_file(position, saved, sizeof(saved));
  if (bytes > 0)
    must(pliant_batches_open(config, plan, dataset, saved, bytes, &batches, &error)); /* refuses that of another job */
  else
    must(pliant_batches_make(config, plan, dataset, &batches, &error));
  must(pliant_learning_rate_make(config, NULL, &rate, &error));

  pliant_layout_t layout = PLIANT_INIT(pliant_layout_t);
  layout.world_size = world_size;
  layout.micro_batch = facts.micro_batch;
  layout.granule = facts.granule;
  layout.multiple = 8;
  layout.flags = PLIANT_LAYOUT_ONE_SHAPE; /* as many micro-batches on every rank: nobody waits for one that has none */
  pliant_batch_t* batch = NULL;
  for (; steps_left > 0; --steps_left) {
    must(pliant_batches_next(batches, &batch, &error));
    if (batch == NULL) break; /* the job is done */
    pliant_micro_batches_t* mine = NULL;
    must(pliant_micro_batches_make((const pliant_batch_t* const*)&batch, 1, &layout, rank, &mine, &error));
    pliant_micro_batches_view_t view = PLIANT_INIT(pliant_micro_batches_view_t);
    must(pliant_micro_batches_look(mine, &view, &error));
    pliant_batch_size_t size = PLIANT_INIT(pliant_batch_size_t);
    must(pliant_batch_size(batch, &size, &error));
    pliant_job_facts_t job = PLIANT_INIT(pliant_job_facts_t);
    must(pliant_batches_look(batches, &job, &error));
    pliant_scaling_t scaling = PLIANT_INIT(pliant_scaling_t);
    must(pliant_learning_rate_scaling(rate, job.next_step - 1, &size, 0, &scaling, &error));
    /* Here: forward and backward over the lines of each micro-batch, all-reduce, an optimizer step with that rate. */
    printf("step %" PRId64 ": %" PRIu64 " of my sequences in %" PRIu64 " micro-batches, rate %.5f\n", job.next_step - 1,
           view.entry_offsets[view.count], view.count, scaling.learning_rate);
    must(pliant_learning_rate_commit(rate, job.next_step - 1, &size, NULL, 0, &error));
    must(pliant_micro_batches_free(mine));
    must(pliant_batch_free(batch));
  }
  must(pliant_batches_save(batches, saved, sizeof(saved), &bytes, &error)); /* belongs into the checkpoint */
  if (position != NULL) write_file(position, saved, bytes);
  printf("a position of %s\n", bytes < 512 ? "less than 512 bytes" : "many bytes");
  must(pliant_learning_rate_free(rate)); /* in any order */
  must(pliant_batches_free(batches));
  must(pliant_dataset_free(dataset));
  must(pliant_plan_free(plan));
  must(pliant_planner_free(planner));
  must(pliant_config_free(config));
  return 0;
}
