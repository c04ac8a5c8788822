// Failure: what plugin code throws; guarded(): the one place where an exception becomes a status.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "pliant/abi/base.h"

namespace pliant::sdk {

/// A refusal with a status of the ABI. The text reaches the user as it is: say what, where, what is allowed.
class Failure : public std::runtime_error {
 public:
  Failure(int32_t status, const std::string& message) : std::runtime_error(message), status_(status) {}
  [[nodiscard]] int32_t status() const noexcept { return status_; }

 private:
  int32_t status_;
};

/// Throws Failure(PLIANT_INVALID_ARGUMENT) unless `holds`.
inline void require(bool holds, const std::string& message) {
  if (!holds) throw Failure(PLIANT_INVALID_ARGUMENT, message);
}
inline void require(bool holds, const char* message) {
  if (!holds) throw Failure(PLIANT_INVALID_ARGUMENT, message);
}
/// For calls that take less time than their message: `message` is a function that makes it when it is wanted.
template <class Message>
requires std::is_invocable_r_v<std::string, Message&>
void require(bool holds, Message&& message) {
  if (!holds) throw Failure(PLIANT_INVALID_ARGUMENT, message());
}

namespace detail {

inline int32_t set_error(pliant_error* error, int32_t status, std::string_view message) noexcept {
  if (error != nullptr && PLIANT_HAS(pliant_error, error, message)) {
    error->status = status;
    const size_t n = std::min(message.size(), sizeof(error->message) - 1);
    std::memcpy(error->message, message.data(), n);
    error->message[n] = '\0';
  }
  return status;
}

/// Runs `body`, turns whatever it throws into a status and a message. Nothing escapes.
template <class Body>
int32_t guarded(pliant_error* error, Body&& body) noexcept {
  try {
    body();
    return PLIANT_OK;
  } catch (const Failure& failure) {
    const int32_t status = failure.status() == PLIANT_OK ? int32_t{PLIANT_INTERNAL} : failure.status();
    return set_error(error, status, failure.what());
  } catch (const std::bad_alloc&) {
    return set_error(error, PLIANT_RESOURCE_EXHAUSTED, "out of memory");
  } catch (const std::exception& other) {
    return set_error(error, PLIANT_INTERNAL, other.what());
  } catch (...) {
    return set_error(error, PLIANT_INTERNAL, "an exception that is no std::exception");
  }
}

inline std::string_view view(pliant_str text) noexcept {
  return text.data == nullptr ? std::string_view{} : std::string_view{text.data, static_cast<size_t>(text.size)};
}

inline pliant_str str(std::string_view text) noexcept {
  return {text.data(), text.size()};
}

}  // namespace detail
}  // namespace pliant::sdk
