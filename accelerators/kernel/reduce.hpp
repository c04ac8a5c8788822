// Element-wise reduction of several inputs in a fixed order.
#pragma once

#include <cstdint>
#include <span>

#include "pliant/sdk/accelerator.hpp"

namespace pliant::accelerator {

/// out[i] = (((inputs[0][i] op inputs[1][i]) op inputs[2][i]) op ...), whatever the block or the machine: same inputs,
/// same bits. Integers wrap around. `also` receives the same unless NULL. `out` and `also` may be any one of the
/// inputs.
void reduce(sdk::DType dtype, sdk::ReduceOp op, std::span<const void* const> inputs, uint64_t count, void* out,
            void* also);

}  // namespace pliant::accelerator
