/* A C program that drives libpliant from a config to a padded micro-batch, and says each number that it got. */
#include <inttypes.h>
#include <pliant.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pliant_error_t error = PLIANT_INIT(pliant_error_t);

static void must(int32_t status) {
  if (status == PLIANT_OK) return;
  fprintf(stderr, "%s\n", pliant_last_message(NULL));
  exit(error.exit_code == 0 ? 1 : error.exit_code);
}

static const char* const kToml =
    "config_version = 1\n"
    "[run]\nseed = 5\nepochs = 2\n"
    "[elasticity]\nuse = \"exact\"\n"
    "[elasticity.exact]\nmax_train_batch_size = 24\nmicro_batch_sizes = [2, 4]\nmax_gpus = 8\n"
    "[sampler]\nuse = \"seqlen\"\n[sampler.seqlen]\nmax_tokens = 64\nstrict = true\n"
    "[balancer]\nuse = \"lpt\"\n"
    "[lr]\nuse = \"linear\"\nbase_lr = 0.5\nbase_batch = 10\nunit = \"sequences\"\n"
    "[app]\nwidth = 7\n";

static void plan_a_job(const pliant_config_t* config, pliant_plan_t** plan) {
  pliant_planner_t* planner = NULL;
  must(pliant_planner_make(config, &planner, &error));
  must(pliant_planner_plan(planner, 3, plan, &error));
  must(pliant_planner_free(planner));
  pliant_plan_facts_t facts = PLIANT_INIT(pliant_plan_facts_t);
  must(pliant_plan_look(*plan, &facts, &error));
  printf("global batch %" PRId64 ", %" PRId64 " at once, %" PRId64 " world sizes\n", facts.global_batch,
         facts.micro_batch, facts.valid_sizes);
}

static void share_a_batch(const pliant_config_t* config, const pliant_batch_t* batch) {
  int64_t costs[64];
  uint64_t rows = 0;
  must(pliant_row_costs(batch, 1, 0, costs, 64, &rows, &error));
  pliant_balancer_t* balancer = NULL;
  must(pliant_balancer_make(config, &balancer, &error));
  pliant_sharing_t sharing = PLIANT_INIT(pliant_sharing_t);
  sharing.world_size = 3;
  sharing.micro_batch = 2;
  sharing.granule = 2;
  pliant_assignment_t* assignment = NULL;
  must(pliant_balancer_assign(balancer, costs, rows, &sharing, &assignment, &error));
  must(pliant_balancer_free(balancer));
  pliant_assignment_view_t view = PLIANT_INIT(pliant_assignment_view_t);
  must(pliant_assignment_look(assignment, &view, &error));
  int64_t shared = 0;
  for (uint64_t block = 0; block < view.offsets[view.world_size]; ++block) shared += view.blocks[2 * block + 1];
  printf("%" PRIu64 " rows, %" PRId64 " shared out over %" PRId64 " ranks\n", rows, shared, view.world_size);
  must(pliant_assignment_free(assignment));
}

static void pad_a_batch(const pliant_batch_t* batch) {
  pliant_layout_t layout = PLIANT_INIT(pliant_layout_t);
  layout.world_size = 3;
  layout.micro_batch = 2;
  layout.granule = 2;
  layout.multiple = 8;
  int64_t lines = 0;
  for (int64_t rank = 0; rank < 3; ++rank) {
    pliant_micro_batches_t* mine = NULL;
    must(pliant_micro_batches_make(&batch, 1, &layout, rank, &mine, &error));
    pliant_micro_batches_view_t view = PLIANT_INIT(pliant_micro_batches_view_t);
    must(pliant_micro_batches_look(mine, &view, &error));
    for (uint64_t line = 0; line < view.line_offsets[view.count]; ++line) {
      if (view.lengths[line] % 8 != 0) exit(1);
      ++lines;
    }
    must(pliant_micro_batches_free(mine));
  }
  printf("%" PRId64 " padded lines\n", lines);
}

static void rate_of_a_batch(const pliant_config_t* config, const pliant_batch_t* batch) {
  pliant_batch_size_t size = PLIANT_INIT(pliant_batch_size_t);
  must(pliant_batch_size(batch, &size, &error));
  pliant_learning_rate_t* rate = NULL;
  must(pliant_learning_rate_make(config, NULL, &rate, &error));
  pliant_scaling_t scaling = PLIANT_INIT(pliant_scaling_t);
  must(pliant_learning_rate_scaling(rate, 0, &size, 0, &scaling, &error));
  must(pliant_learning_rate_free(rate));
  printf("rate a sequence %.3f\n", scaling.learning_rate / (double)size.sequences);
}

int main(void) {
  must(pliant_check_version(PLIANT_VERSION));
  pliant_config_options_t options = PLIANT_INIT(pliant_config_options_t);
  options.needs = "elasticity sampler balancer lr";
  pliant_config_t* config = NULL;
  must(pliant_config_parse(kToml, strlen(kToml), &options, &config, &error));
  int64_t width = 0;
  must(pliant_config_app_int(config, "width", 1, &width, &error));
  printf("width %" PRId64 "\n", width);

  pliant_plan_t* plan = NULL;
  plan_a_job(config, &plan);
  int32_t tokens[200];
  for (int i = 0; i < 200; ++i) tokens[i] = 3 + i * 7 % 29;
  pliant_lengths_t lengths = PLIANT_INIT(pliant_lengths_t);
  lengths.count = 200;
  lengths.lengths = tokens;
  pliant_dataset_t* dataset = NULL;
  must(pliant_dataset_make(&lengths, &dataset, &error));
  pliant_batches_t* batches = NULL;
  must(pliant_batches_make(config, plan, dataset, &batches, &error));
  must(pliant_plan_free(plan));
  must(pliant_dataset_free(dataset));

  int64_t sequences = 0;
  pliant_batch_t* batch = NULL;
  pliant_batch_t* first = NULL;
  must(pliant_batches_at_step(batches, 0, &first, &error));
  for (;;) {
    must(pliant_batches_next(batches, &batch, &error));
    if (batch == NULL) break;
    pliant_batch_view_t view = PLIANT_INIT(pliant_batch_view_t);
    must(pliant_batch_look(batch, &view, &error));
    sequences += view.sequences;
    must(pliant_batch_free(batch));
  }
  printf("%" PRId64 " sequences in two epochs\n", sequences);
  must(pliant_batches_free(batches));
  share_a_batch(config, first);
  pad_a_batch(first);
  rate_of_a_batch(config, first);
  must(pliant_batch_free(first));
  must(pliant_config_free(config));

  /* A config with two findings: the text holds both, and the process goes on. */
  const char* const wrong =
      "config_version = 1\n[rum]\n[elasticity]\nuse = \"v0.1\"\n[elasticity.\"v0.1\"]\nmax_gpu = 4\n";
  options.needs = "elasticity";
  const int32_t status = pliant_config_parse(wrong, strlen(wrong), &options, &config, &error);
  printf("status %" PRId32 ", exit code %" PRId32 "\n%s\n", status, error.exit_code, pliant_last_message(NULL));
  return 0;
}
