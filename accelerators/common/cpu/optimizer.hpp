// The SDK's arithmetic of optimizers, compiled once, where roots are vectorised.
#pragma once

#include <cstdint>

#include "pliant/sdk/optimizer.hpp"

namespace pliant::accelerator {

/// sdk::adamw.
void adamw(const pliant_adamw_update& update, const sdk::AdamWArrays& arrays);
/// sdk::squared_norms.
void squared_norms(double* to, const float* from, uint64_t count);

}  // namespace pliant::accelerator
