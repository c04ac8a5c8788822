// What a step says of the noise of its gradient, for the learning-rate rules that live on it.
#pragma once

#include "elastic/reduction.hpp"
#include "pliant/learning_rate.hpp"

namespace pliant::elastic {

/// `reduced` was measured; `mean_norm` is the squared norm of its gradient per loss token.
GradientNorms norms_of(const ReductionResult& reduced, double mean_norm);

}  // namespace pliant::elastic
