// The SDK's arithmetic on arrays, compiled once: it takes longest of all.
#pragma once

#include <cstdint>
#include <span>

#include "pliant/sdk/accelerator.hpp"

namespace pliant::accelerator {

/// sdk::reduce.
void reduce(sdk::DType dtype, sdk::ReduceOp op, std::span<const void* const> inputs, double scale, uint64_t count,
            void* out, void* also = nullptr);
/// sdk::cast.
void cast(sdk::DType from_type, const void* from, sdk::DType to_type, void* to, uint64_t count);

}  // namespace pliant::accelerator
