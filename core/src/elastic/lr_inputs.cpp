// Gradient norms from a reduction, and the length of a job from its epochs.
#include "elastic/lr_inputs.hpp"

#include <algorithm>

namespace pliant::elastic {

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
  for (int64_t epoch = 0; epoch < run.epochs && (run.max_steps == 0 || all < run.max_steps); ++epoch) {
    const EpochSummary& summary = batches.epoch(epoch);
    all += summary.batches;
    length.size.rows += summary.rows - summary.padding_rows;
    length.size.sequences += summary.sequences;
    length.size.tokens += summary.tokens;
    length.size.loss_tokens += summary.loss_tokens;
  }
  length.steps = run.max_steps == 0 ? all : std::min(all, run.max_steps);
  if (all == 0 || length.steps == all) return length;
  const double share = static_cast<double>(length.steps) / static_cast<double>(all);
  for (int64_t* count : {&length.size.rows, &length.size.sequences, &length.size.tokens, &length.size.loss_tokens}) {
    *count = static_cast<int64_t>(static_cast<double>(*count) * share);
  }
  return length;
}

}  // namespace pliant::elastic
