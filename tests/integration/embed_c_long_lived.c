/* The sample embed_c calls these in place of pliant_session_next and pliant_session_commit: what programs that run for
 * days say and ask. */
#undef pliant_session_next
#undef pliant_session_commit
#include <math.h>
#include <pliant.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int32_t next_of_long_lived(pliant_session_t* session, pliant_step_t* step, pliant_error_t* error);
int32_t commit_of_long_lived(pliant_session_t* session, pliant_committed_t* committed, pliant_error_t* error);

enum { kLooksAhead = 3, kMostSteps = 100, kMostMicroBatches = 32, kBestSteps = 6 };

/* What was said last of a step that would come: copied, for it is lent until the next step only. */
typedef struct foretold {
  int is_there;
  int64_t index;
  int64_t shares;
  int64_t epoch;
  int64_t index_in_epoch;
  uint64_t digest; /* of the rows: sequences and their order */
  uint64_t micro_batch_count;
  int64_t micro_batches[2 * kMostMicroBatches];
} foretold;

static foretold of_steps[kMostSteps]; /* by index */
static int64_t step_in_hand = -1;
static int as_foretold, shared_out_anew;

static void expect(int is_so, const char* what) {
  if (is_so) return;
  fprintf(stderr, "embed_c_long_lived: %s\n", what);
  exit(9);
}

static int32_t before_snapshot(void* context, int64_t step) {
  *(int64_t*)context = step;
  return step > 0 ? PLIANT_OK : PLIANT_INTERNAL;
}

static void after_snapshot(void* context, int64_t step, const char* file, const char* why) {
  expect(*(int64_t*)context == step && strlen(file) > 0 && strlen(why) == 0, "a snapshot is not that of before");
  fprintf(stderr, "embed_c_long_lived: wrote a snapshot\n");
}

static foretold as_said(const pliant_step_t* step, pliant_error_t* error) {
  pliant_batch_view_t view = PLIANT_INIT(pliant_batch_view_t);
  expect(pliant_batch_look(step->batch, &view, error) == PLIANT_OK && view.sequences > 0, "a batch");
  expect(step->micro_batch_count <= kMostMicroBatches, "more micro-batches than a batch has rows");
  foretold said = {1, step->index, step->shares, view.epoch, view.index, view.digest, step->micro_batch_count, {0}};
  if (step->micro_batch_count > 0)
    memcpy(said.micro_batches, step->micro_batches, 2 * step->micro_batch_count * sizeof(int64_t));
  return said;
}

static void look_ahead(pliant_session_t* session, pliant_error_t* error) {
  pliant_step_t next = PLIANT_INIT(pliant_step_t);
  expect(pliant_session_coming(session, 0, &next, error) == PLIANT_INVALID_ARGUMENT, "0 steps ahead");
  for (int64_t ahead = 1; ahead <= kLooksAhead; ++ahead) {
    expect(pliant_session_coming(session, ahead, &next, error) == PLIANT_OK, "steps ahead");
    if (next.batch == NULL) return; /* past the last one */
    expect(next.index == step_in_hand + ahead && next.index < kMostSteps, "another step than so many ahead");
    expect(next.shares > 0 && next.world_size > 0 && next.rank < next.world_size, "its numbers");
    of_steps[next.index] = as_said(&next, error);
  }
}

/* The batch is what was foretold in any case, the rows of this rank where nothing was shared out anew. */
static void compare_with_foretold(const pliant_step_t* step, pliant_error_t* error) {
  if (step->index >= kMostSteps || !of_steps[step->index].is_there) return;
  const foretold* const said = &of_steps[step->index];
  const foretold came = as_said(step, error);
  expect(came.index == said->index && came.epoch == said->epoch && came.index_in_epoch == said->index_in_epoch,
         "a step is elsewhere than was foretold");
  expect(came.digest == said->digest, "a step has another batch than was foretold");
  if (came.shares != said->shares) {
    ++shared_out_anew;
    return;
  }
  expect(came.micro_batch_count == said->micro_batch_count &&
             memcmp(came.micro_batches, said->micro_batches, sizeof(came.micro_batches)) == 0,
         "a step has other rows than were foretold, and nobody said so");
  ++as_foretold;
}

int32_t next_of_long_lived(pliant_session_t* session, pliant_step_t* step, pliant_error_t* error) {
  const int32_t status = pliant_session_next(session, step, error);
  if (status != PLIANT_OK) return status;
  if (step->batch == NULL) {
    fprintf(stderr, "embed_c_long_lived: %d steps as foretold, %d shared out anew\n", as_foretold, shared_out_anew);
    return status;
  }
  step_in_hand = step->index;
  compare_with_foretold(step, error);
  return status;
}

static void scale_groups(pliant_session_t* session, pliant_error_t* error) {
  pliant_scaling_t own = PLIANT_INIT(pliant_scaling_t);
  pliant_scaling_t twice = PLIANT_INIT(pliant_scaling_t);
  expect(pliant_session_scaling(session, &own, error) == PLIANT_OK, "the rate");
  expect(pliant_session_scaling_of(session, 0.1, &twice, error) == PLIANT_OK, "the rate of a group");
  expect(fabs(twice.learning_rate - 2 * own.learning_rate) < 1e-9, "twice the base rate");
  expect(pliant_session_scaling_of(session, 0, &twice, error) == PLIANT_INVALID_ARGUMENT, "no base rate");
  expect(pliant_session_scaling_of_group(session, "head", &twice, error) == PLIANT_OK, "the rate of a named group");
  expect(fabs(twice.learning_rate - 2 * own.learning_rate) < 1e-9, "twice the base rate by name");
  expect(pliant_session_scaling_of_group(session, "tail", &twice, error) == PLIANT_NOT_FOUND, "no such group");
  expect(pliant_session_scaling_of_group(session, NULL, &twice, error) == PLIANT_INVALID_ARGUMENT, "no name");
}

static void be_busy(pliant_session_t* session, pliant_error_t* error) {
  expect(pliant_session_end_busy(session, error) == PLIANT_FAILED_PRECONDITION, "nothing to end");
  expect(pliant_session_begin_busy(session, "", 1, error) == PLIANT_INVALID_ARGUMENT, "busy with nothing");
  expect(pliant_session_begin_busy(session, "x", 0, error) == PLIANT_INVALID_ARGUMENT, "busy for no time");
  expect(pliant_session_begin_busy(session, "evaluation", 60, error) == PLIANT_OK, "busy");
  expect(pliant_session_begin_busy(session, "compilation", 60, error) == PLIANT_OK, "busy within that");
  for (int i = 0; i < 2; ++i) expect(pliant_session_end_busy(session, error) == PLIANT_OK, "busy no more");
}

int32_t commit_of_long_lived(pliant_session_t* session, pliant_committed_t* committed, pliant_error_t* error) {
  static int64_t step_of_snapshot;
  expect(pliant_session_on_snapshot(session, before_snapshot, after_snapshot, &step_of_snapshot, error) == PLIANT_OK,
         "hooks");
  look_ahead(session, error);
  scale_groups(session, error);
  be_busy(session, error);
  expect(pliant_session_metric(session, "half", 0.5, 2, PLIANT_METRIC_MEAN, error) == PLIANT_OK, "a mean");
  expect(pliant_session_metric(session, "ranks", 1, 0, PLIANT_METRIC_SUM, error) == PLIANT_OK, "a sum");
  expect(pliant_session_metric(session, "a b", 1, 1, PLIANT_METRIC_SUM, error) == PLIANT_INVALID_ARGUMENT,
         "a bad name");
  expect(pliant_session_metric(session, "x", 1, 1, 9, error) == PLIANT_INVALID_ARGUMENT, "a bad rule");
  const int32_t status = pliant_session_commit(session, committed, error);
  if (status != PLIANT_OK || !committed->is_committed) return status;
  expect(pliant_session_metric(session, "late", 1, 1, PLIANT_METRIC_SUM, error) == PLIANT_FAILED_PRECONDITION, "late");
  expect(pliant_session_evaluated(session, "quality", 3, 1, PLIANT_METRIC_MEAN, error) == PLIANT_OK, "a result");
  const double distance = fabs((double)(step_in_hand + 1 - kBestSteps)); /* the least is that of no last step */
  expect(pliant_session_evaluated(session, "distance", distance, 1, PLIANT_METRIC_MEAN, error) == PLIANT_OK, "another");
  double quality = 7;
  int64_t step = 7;
  expect(pliant_session_last_evaluation(session, "quality", &quality, &step, error) == PLIANT_OK, "what was found");
  expect(quality == (step < 0 ? 0 : 3), "a quality");
  expect(pliant_session_end_after_step(session, "", error) == PLIANT_INVALID_ARGUMENT, "no reason");
  if (step >= 10) expect(pliant_session_end_after_step(session, "it is good", error) == PLIANT_OK, "the end");
  return status;
}
