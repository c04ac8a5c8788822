// Copies that CUDA makes in stream order.
#pragma once

#include <span>

#include "api.hpp"
#include "pliant/abi/accelerator.h"

namespace pliant::cuda {

/// All of them, in any order; in one call where runtime and driver have it. Throws what CUDA says.
void submit_copies(const Api& api, std::span<const pliant_copy> copies, cudaStream_t stream);

}  // namespace pliant::cuda
