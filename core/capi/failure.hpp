// Failures at the border of C: an exception becomes a status, the caller's error struct and this thread's last message.
#pragma once

#include <string_view>

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

/// Calls of this thread that failed before a callback are not what it passes on.
void begin_callback() noexcept;
/// Throws for a callback of the program that ended with another `status` than PLIANT_OK: as the call that failed last
/// in it, where that is what it passes on. `what` names the callback.
[[noreturn]] void throw_of_callback(int32_t status, const char* what);

/// Runs `callback`, a function of the program that returns a status; throws for another one than PLIANT_OK.
template <class Callback>
void call_back(const char* what, const Callback& callback) {
  begin_callback();
  if (const int32_t status = callback(); status != PLIANT_OK) throw_of_callback(status, what);
}

/// Bytes of `text` that a room of `room` bytes, at least 1, holds with its NUL: whole characters.
[[nodiscard]] size_t whole_characters(std::string_view text, size_t room);

/// The exit code that a wrong argument of a call asks for is that of a program that is wrong, not of its user's config.
[[nodiscard]] inline Error wrong(std::string message) {
  return {Status::kInvalidArgument, std::move(message)};
}

/// Throws where the caller brought NULL for what a call needs.
inline void require(const void* pointer, const char* name) {
  if (pointer == nullptr) throw wrong(std::string(name) + " is NULL");
}

}  // namespace pliant::capi
