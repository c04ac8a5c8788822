// Result<T>: how functions below the API edge report failure; or_throw(): the edge.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "pliant/error.hpp"

namespace pliant {

template <class T = void>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> failed(Status status, std::string message, Origin origin = Origin::kRun) {
  return tl::unexpected<Error>(Error(status, std::move(message), origin));
}

/// Passes the error of `result` on from a function with another value type.
template <class T>
[[nodiscard]] tl::unexpected<Error> failed(Result<T>&& result) {
  return tl::unexpected<Error>(std::move(result.error()));
}

template <class T>
T or_throw(Result<T> result) {
  if (!result) throw std::move(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace pliant
