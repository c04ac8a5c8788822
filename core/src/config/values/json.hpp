// Config values as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "config/values/value.hpp"

namespace pliant::config {

/// Tables keep their order; infinities and NaN become null.
nlohmann::ordered_json to_json(const Value& value);

}  // namespace pliant::config
