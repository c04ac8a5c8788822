// Gradient norms from a reduction, and the length of a job from its epochs.
#include "elastic/lr_inputs.hpp"

#include <algorithm>

namespace pliant::elastic {
namespace {

/// A schedule is not off by a step in thousands for the epochs after these; to plan all of a job without an end would
/// have none.
constexpr int64_t kMostEpochsPlanned = 64;

int64_t scaled(int64_t count, double factor) {
  constexpr double kMost = 9e18;  // an int64_t holds a little more
  return static_cast<int64_t>(std::min(static_cast<double>(count) * factor, kMost));
}

}  // namespace

// A mean of n_i |g_i|^2 over parts of n_i loss tokens has the noise of parts of their mean size, so parts may differ.
GradientNorms norms_of(const ReductionResult& reduced, std::span<const float> mean_gradient) {
  GradientNorms norms;
  norms.parts = reduced.parts;
  norms.small_norm = reduced.part_norms / static_cast<double>(std::max<int64_t>(reduced.loss_tokens, 1));
  for (const float g : mean_gradient) norms.big_norm += static_cast<double>(g) * static_cast<double>(g);
  return norms;
}

JobLength length_of_job(Batches& batches, const RunOptions& run) {
  JobLength length;
  int64_t all = 0;
  int64_t planned = 0;
  const int64_t most = std::min(run.epochs, kMostEpochsPlanned);
  for (; planned < most && (run.max_steps == 0 || all < run.max_steps); ++planned) {
    const EpochSummary& summary = batches.epoch(planned);
    all += summary.batches;
    length.size.rows += summary.rows - summary.padding_rows;
    length.size.sequences += summary.sequences;
    length.size.tokens += summary.tokens;
    length.size.loss_tokens += summary.loss_tokens;
  }
  const int64_t expected =
      planned < run.epochs ? scaled(all, static_cast<double>(run.epochs) / static_cast<double>(planned)) : all;
  length.steps = run.max_steps == 0 ? expected : std::min(expected, run.max_steps);
  if (all == 0 || length.steps == all) return length;
  const double share = static_cast<double>(length.steps) / static_cast<double>(all);
  for (int64_t* count : {&length.size.rows, &length.size.sequences, &length.size.tokens, &length.size.loss_tokens}) {
    *count = scaled(*count, share);
  }
  return length;
}

}  // namespace pliant::elastic
