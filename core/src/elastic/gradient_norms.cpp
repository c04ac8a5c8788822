// Gradient norms from a reduction.
#include "elastic/gradient_norms.hpp"

#include <algorithm>

namespace pliant::elastic {

// A mean of n_i |g_i|^2 over parts of n_i loss tokens has the noise of parts of their mean size, so parts may differ.
GradientNorms norms_of(const ReductionResult& reduced, double mean_norm) {
  GradientNorms norms;
  norms.parts = reduced.parts;
  norms.small_norm = reduced.part_norms / static_cast<double>(std::max<int64_t>(reduced.loss_tokens, 1));
  norms.big_norm = mean_norm;
  return norms;
}

}  // namespace pliant::elastic
