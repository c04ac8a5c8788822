// What a session tells the learning-rate rules beside the size of a batch.
#pragma once

#include <span>

#include "elastic/reduction.hpp"
#include "pliant/batches.hpp"
#include "pliant/config.hpp"
#include "pliant/learning_rate.hpp"

namespace pliant::elastic {

/// `reduced` was measured; `mean_gradient` is its gradient per loss token.
GradientNorms norms_of(const ReductionResult& reduced, std::span<const float> mean_gradient);

/// All epochs of [run], or the part of them that max_steps leaves. Plans every epoch that counts, but no more than 64:
/// later ones are taken to be like the mean of those.
JobLength length_of_job(Batches& batches, const RunOptions& run);

}  // namespace pliant::elastic
