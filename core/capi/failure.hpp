// Failures at the border of C: an exception becomes a status, the caller's error struct and this thread's last message.
#pragma once

#include "pliant.h"
#include "pliant/error.hpp"

namespace pliant::capi {

/// What the exception in flight says, as a status other than PLIANT_OK. Fills `error` as far as its maker knows it;
/// NULL is none.
int32_t report(pliant_error_t* error) noexcept;

/// Runs `work`, the whole of a call.
template <class Work>
int32_t answer(pliant_error_t* error, Work&& work) noexcept {
  try {
    work();
    return PLIANT_OK;
  } catch (...) {
    return report(error);
  }
}

/// The exit code that a wrong argument of a call asks for is that of a program that is wrong, not of its user's config.
[[nodiscard]] inline Error wrong(std::string message) {
  return {Status::kInvalidArgument, std::move(message)};
}

/// Throws where the caller brought NULL for what a call needs.
inline void require(const void* pointer, const char* name) {
  if (pointer == nullptr) throw wrong(std::string(name) + " is NULL");
}

}  // namespace pliant::capi
