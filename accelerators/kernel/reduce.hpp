// Arithmetic on arrays: the reduction of several inputs in a fixed order, and conversion between element types.
#pragma once

#include <cstdint>
#include <span>

#include "pliant/sdk/accelerator.hpp"

namespace pliant::accelerator {

/// out[i] = (((inputs[0][i] op inputs[1][i]) op inputs[2][i]) op ...) * scale, whatever the block or the machine: same
/// inputs, same bits. Integers wrap around and have scale 1. 16-bit floats are added and scaled as floats and rounded
/// once, to the nearest, ties to even. `also` receives the same unless NULL. `out` and `also` may be any one of the
/// inputs.
void reduce(sdk::DType dtype, sdk::ReduceOp op, std::span<const void* const> inputs, double scale, uint64_t count,
            void* out, void* also);

/// Which instructions reduce() may use. Same bits from all of them.
enum class Instructions { kEveryMachine, kAvx2 };
/// Whether this machine has them.
bool has(Instructions instructions);
/// As reduce(), which takes the best that this machine has.
void reduce_with(Instructions instructions, sdk::DType dtype, sdk::ReduceOp op, std::span<const void* const> inputs,
                 double scale, uint64_t count, void* out, void* also);

/// to[i] = from[i] as the other type: to the nearest, ties to even, and infinity past the largest, 16-bit floats by way
/// of float; an integer from a float rounds towards 0 and stays within its range, 0 from NaN; an integer from a wider
/// one wraps around. The ranges must not overlap.
void cast(sdk::DType from_type, const void* from, sdk::DType to_type, void* to, uint64_t count);

}  // namespace pliant::accelerator
