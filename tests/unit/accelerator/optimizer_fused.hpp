// The processors' AdamW, compiled where multiplication and addition may be one operation.
#pragma once

#include <cstdint>

#include "pliant/abi/optimizer.h"

namespace pliant::test {

/// On weights, gradient, first and second moment. Needs the instructions of avx2 and fma.
void adamw_where_fused(bool avx2, const pliant_adamw_update& update, float* const (&arrays)[4], uint64_t count);

}  // namespace pliant::test
