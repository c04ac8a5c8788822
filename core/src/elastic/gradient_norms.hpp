// What a step says of the noise of its gradient, for the learning-rate rules that live on it.
#pragma once

#include <span>

#include "elastic/reduction.hpp"
#include "pliant/learning_rate.hpp"

namespace pliant::elastic {

/// `reduced` was measured; `mean_gradient` is its gradient per loss token, of `parameters` of so many elements.
GradientNorms norms_of(const ReductionResult& reduced, std::span<const float> mean_gradient,
                       std::span<const uint64_t> parameters);

}  // namespace pliant::elastic
