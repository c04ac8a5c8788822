// Whole numbers in the JSON of a trace file: what does not fit is refused, not cut.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "pliant/error.hpp"

namespace pliant::sharded {

/// Throws kDataLoss.
template <class Number>
Number whole_number(const nlohmann::json& value) {
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<Number>(value.get<uint64_t>())
                        : value.is_number_integer() && std::in_range<Number>(value.get<int64_t>());
  if (!fits) throw Error(Status::kDataLoss, "a number in it is not whole or is too large");
  return value.get<Number>();
}

}  // namespace pliant::sharded
