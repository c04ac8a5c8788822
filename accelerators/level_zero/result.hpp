// What Level Zero answers, in words and as statuses of the ABI.
#pragma once

#include <level_zero/ze_api.h>

#include <string>

#include "pliant/sdk/failure.hpp"

namespace pliant::level_zero {

/// "ZE_RESULT_ERROR_DEVICE_LOST: the device hung, was reset or was removed".
std::string text_of(ze_result_t result);

/// `call` is the function that gave the result.
sdk::Failure failure_of(ze_result_t result, const char* call);

/// Throws failure_of() unless the result is ZE_RESULT_SUCCESS.
inline void check(ze_result_t result, const char* call) {
  if (result != ZE_RESULT_SUCCESS) throw failure_of(result, call);
}

}  // namespace pliant::level_zero
