// Gradient norms from a reduction.
#include "elastic/gradient_norms.hpp"

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

}  // namespace pliant::elastic
