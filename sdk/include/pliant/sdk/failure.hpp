// Failure: what plugin code throws; guarded(): the one place where an exception becomes a status.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "pliant/abi/base.h"
#include "pliant/sdk/sized.hpp"

namespace pliant::sdk {

/// A refusal with a status of the ABI. The text reaches the user as it is: say what, where, what is allowed.
class Failure : public std::runtime_error {
 public:
  /// `options`: keys of the options that it is about, the likeliest first, with a space between. The user is shown
  /// where the first of them is set that is set at all.
  Failure(int32_t status, const std::string& message, std::string options = {})
      : std::runtime_error(message), status_(status), options_(std::move(options)) {}
  [[nodiscard]] int32_t status() const noexcept { return status_; }
  [[nodiscard]] const std::string& options() const noexcept { return options_; }
  /// What it is about, as pliant_error says; -1: none. The message names it for people, this for programs:
  /// `throw Failure(PLIANT_PEER_LOST, "rank 3 is lost").about_rank(3)`.
  [[nodiscard]] int32_t rank() const noexcept { return rank_; }
  [[nodiscard]] int32_t device() const noexcept { return device_; }
  [[nodiscard]] Failure about_rank(int32_t rank) const {
    Failure made = *this;
    made.rank_ = rank;
    return made;
  }
  [[nodiscard]] Failure about_device(int32_t device) const {
    Failure made = *this;
    made.device_ = device;
    return made;
  }

 private:
  int32_t status_;
  std::string options_;
  int32_t rank_ = -1;
  int32_t device_ = -1;
};

/// Makes it what a caller gives to a slot.
inline void make_blank(pliant_error& error) noexcept {
  std::memset(&error, 0, sizeof(error));
  error.struct_size = sizeof(error);
  error.rank = -1;
  error.device = -1;
}
[[nodiscard]] inline pliant_error blank_error() noexcept {
  pliant_error made;
  make_blank(made);
  return made;
}

/// Throws Failure(PLIANT_INVALID_ARGUMENT) unless `holds`. `options`: as in Failure.
inline void require(bool holds, const std::string& message, const char* options = "") {
  if (!holds) throw Failure(PLIANT_INVALID_ARGUMENT, message, options);
}
inline void require(bool holds, const char* message, const char* options = "") {
  if (!holds) throw Failure(PLIANT_INVALID_ARGUMENT, message, options);
}
/// For calls that take less time than their message: `message` is a function that makes it when it is wanted.
template <class Message>
requires std::is_invocable_r_v<std::string, Message&>
void require(bool holds, Message&& message) {
  if (!holds) throw Failure(PLIANT_INVALID_ARGUMENT, message());
}

namespace detail {

/// Apart, so that the look at what is right is short enough to stand where it is taken.
[[noreturn, gnu::noinline, gnu::cold]] inline void refuse_null(const char* name) {
  throw Failure(PLIANT_INVALID_ARGUMENT, std::string("the host's ") + name + " is NULL");
}
[[noreturn, gnu::noinline, gnu::cold]] inline void refuse_short(const char* name, size_t bytes, size_t needed) {
  throw Failure(PLIANT_INVALID_ARGUMENT, std::string("the host's ") + name + " is too short: " + std::to_string(bytes) +
                                             " bytes, " + std::to_string(needed) + " are needed");
}

}  // namespace detail

/// `given`, whose maker must know the fields up to `last`, which the struct had in its first draft. Throws
/// Failure(PLIANT_INVALID_ARGUMENT) where it is NULL or shorter; `name`: of the struct.
template <class Struct, class Field>
[[nodiscard]] inline Struct* whole(Struct* given, Field std::remove_const_t<Struct>::*last, const char* name) {
  if (given == nullptr) detail::refuse_null(name);
  const size_t needed = bytes_to(last);
  if (given->struct_size < needed) detail::refuse_short(name, given->struct_size, needed);
  return given;
}
/// The same, as widened() copies it.
template <class Struct, class Field>
[[nodiscard]] Struct taken(const Struct* given, Field Struct::*last, const char* name) {
  return widened(*whole(given, last, name));
}

namespace detail {

template <size_t kSize>
void put_text(std::string_view text, char (&to)[kSize]) noexcept {
  std::copy_n(text.begin(), std::min(text.size(), kSize - 1), to);
}

inline int32_t set_error(pliant_error* error, int32_t status, std::string_view message, std::string_view options = {},
                         int32_t rank = -1, int32_t device = -1) noexcept {
  if (error == nullptr) return status;
  pliant_error made{};
  made.status = status;
  put_text(message, made.message);
  put_text(options, made.options);
  made.rank = rank;
  made.device = device;
  fill(error, made);
  return status;
}

inline int32_t set_error(pliant_error* error, const Failure& failure) noexcept {
  const int32_t status = failure.status() == PLIANT_OK ? int32_t{PLIANT_INTERNAL} : failure.status();
  return set_error(error, status, failure.what(), failure.options(), failure.rank(), failure.device());
}

/// Runs `body`, turns whatever it throws into a status and a message. Nothing escapes.
template <class Body>
int32_t guarded(pliant_error* error, Body&& body) noexcept {
  try {
    body();
    return PLIANT_OK;
  } catch (const Failure& failure) {
    return set_error(error, failure);
  } catch (const std::bad_alloc&) {
    return set_error(error, PLIANT_RESOURCE_EXHAUSTED, "out of memory");
  } catch (const std::exception& other) {
    return set_error(error, PLIANT_INTERNAL, other.what());
  } catch (...) {
    return set_error(error, PLIANT_INTERNAL, "an exception other than std::exception");
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
