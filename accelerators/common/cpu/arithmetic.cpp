// The SDK's arithmetic on arrays, compiled once.
#include "pliant/sdk/arithmetic.hpp"

#include "common/cpu/arithmetic.hpp"

namespace pliant::accelerator {

void reduce(sdk::DType dtype, sdk::ReduceOp op, std::span<const void* const> inputs, double scale, uint64_t count,
            void* out, void* also) {
  sdk::reduce(dtype, op, inputs, scale, count, out, also);
}

void cast(sdk::DType from_type, const void* from, sdk::DType to_type, void* to, uint64_t count) {
  sdk::cast(from_type, from, to_type, to, count);
}

}  // namespace pliant::accelerator
