// What CUDA answers, in words and as statuses of the ABI.
#pragma once

#include <string>

#include "api.hpp"
#include "pliant/sdk/failure.hpp"

namespace pliant::cuda {

/// "cudaErrorMemoryAllocation: the device has not enough memory for it".
std::string text_of(const Api& api, cudaError_t result);

/// `call` is the function that gave the result. Takes the error out of what cudaGetLastError would tell the caller.
sdk::Failure failure_of(const Api& api, cudaError_t result, const char* call);

/// Throws failure_of() unless the result is cudaSuccess.
inline void check(const Api& api, cudaError_t result, const char* call) {
  if (result != cudaSuccess) throw failure_of(api, result, call);
}

}  // namespace pliant::cuda
