// kappa, the ratio of a batch to the base batch, as the rules of this folder want it.
#pragma once

#include <cmath>
#include <string>

#include "pliant/sdk/lr_rule.hpp"

namespace pliant::lr {

/// batch / base_batch, at least 0 and finite; throws otherwise.
inline double batch_ratio(const sdk::LrInput& in) {
  sdk::require(std::isfinite(in.base_batch) && in.base_batch > 0, [&] {
    return "base_batch is " + std::to_string(in.base_batch) +
           "; the batch is measured against it, so it must be finite and above 0";
  });
  sdk::require(std::isfinite(in.batch) && in.batch >= 0,
               [&] { return "a batch of " + std::to_string(in.batch) + "; it must be finite and not below 0"; });
  const double ratio = in.batch / in.base_batch;
  sdk::require(std::isfinite(ratio), [&] {
    return "a batch of " + std::to_string(in.batch) + " over a base_batch of " + std::to_string(in.base_batch) +
           " is not a finite ratio";
  });
  return ratio;
}

/// Nothing is learnt from an empty batch: the rate is 0 and all else stays.
inline sdk::LrScaling empty_batch(const sdk::LrInput& in) {
  sdk::LrScaling none = in.so_far;
  none.multiply_lr(0);
  return none;
}

}  // namespace pliant::lr
