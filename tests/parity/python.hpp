// The few things of Python that decide what a golden row's arguments mean.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parity/parity.hpp"

namespace pliant::parity {

/// bool(value).
bool is_true(const Json& value);

/// float(value); nullopt where Python raises.
std::optional<double> as_float(const Json& value);

/// True for the integers, of any size; not for booleans.
bool is_integer(const Json& value);

/// True when the value fits int64_t.
bool fits(const Json& integer);

/// json.dumps(value): integers of any size in their digits; NaN and infinities by name.
std::string python_json(const Json& value);

/// True when `version` is a version by PEP 440 and not before 0.3.8, the oldest DeepSpeed with elasticity.
bool knows_elasticity(const Json& version);

}  // namespace pliant::parity
