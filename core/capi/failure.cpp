// The error struct of C, and the last message of each thread.
#include "failure.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "pliant/exit_code.hpp"

namespace pliant::capi {

namespace {

/// As errno is: of a thread, until its next call that fails.
std::string& last_message() {
  static thread_local std::string one;
  return one;
}

/// What it was, for callbacks that pass it on.
std::optional<Error>& last_failure() {
  static thread_local std::optional<Error> one;
  return one;
}

void fill(pliant_error_t* error, const Error& failure, std::string_view text) noexcept {
  if (error == nullptr || error->struct_size <= sizeof(uint32_t)) return;
  pliant_error_t made = PLIANT_INIT(pliant_error_t);
  made.status = static_cast<int32_t>(failure.status());
  made.exit_code = static_cast<int32_t>(exit_code_of(failure));
  made.rank = failure.rank();
  made.device = failure.device();
  made.message_bytes = text.size();
  const size_t bytes = std::min<size_t>(error->struct_size, sizeof(made));
  const size_t room = bytes > offsetof(pliant_error_t, message) ? bytes - offsetof(pliant_error_t, message) : 0;
  if (room > 0) std::memcpy(made.message, text.data(), whole_characters(text, room));
  made.struct_size = error->struct_size;
  std::memcpy(error, &made, bytes);
}

int32_t report_as(pliant_error_t* error, const Error& failure) noexcept {
  std::string_view text = failure.message();
  try {
    last_failure() = failure;
    last_message() = failure.message();
  } catch (...) {
    last_failure().reset();
    last_message().clear();
    text = "no memory is left for the message";
  }
  fill(error, failure, text);
  return static_cast<int32_t>(failure.status());
}

}  // namespace

void begin_callback() noexcept {
  last_failure().reset();
}

void throw_of_callback(int32_t status, const char* what) {
  const std::optional<Error>& last = last_failure();
  if (last && static_cast<int32_t>(last->status()) == status) throw Error(*last);
  const bool is_known = status > PLIANT_OK && status <= PLIANT_DEADLINE_EXCEEDED;
  throw Error(is_known ? static_cast<Status>(status) : Status::kInternal,
              std::string("the program's own ") + what + " ended with status " + std::to_string(status));
}

size_t whole_characters(std::string_view text, size_t room) {
  if (text.size() < room) return text.size();
  size_t bytes = room - 1;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) --bytes;
  return bytes;
}

int32_t report(pliant_error_t* error) noexcept {
  try {
    try {
      throw;
    } catch (const Error& failure) {
      if (failure.status() != Status::kOk) return report_as(error, failure);
      return report_as(error, failure.with_message("a failure without a status: " + failure.message()));
    } catch (const std::bad_alloc&) {
      return report_as(error, Error(Status::kResourceExhausted, "no memory is left"));
    } catch (const std::length_error&) {
      return report_as(error, Error(Status::kResourceExhausted, "more memory is asked for than there can be"));
    } catch (const std::exception& failure) {
      return report_as(error, Error(Status::kInternal, failure.what()));
    } catch (...) {
      return report_as(error, Error(Status::kInternal, "an exception without a name"));
    }
  } catch (...) {  // no memory for the words
    if (error != nullptr && error->struct_size >= offsetof(pliant_error_t, status) + sizeof(error->status))
      error->status = PLIANT_RESOURCE_EXHAUSTED;
    return PLIANT_RESOURCE_EXHAUSTED;
  }
}

}  // namespace pliant::capi

const char* pliant_last_message(uint64_t* bytes) {
  const std::string& text = pliant::capi::last_message();
  if (bytes != nullptr) *bytes = text.size();
  return text.c_str();
}
