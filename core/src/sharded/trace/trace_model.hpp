// The model in a trace file: tables as JSON, and back.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json_fwd.hpp>

#include "sharded/shards/model_tables.hpp"

namespace pliant::sharded {

/// {"parameters": [...], "modules": [...]}; O(modules + parameters).
void append_model(fmt::memory_buffer& to, const ModelTables& model);

/// Closed; what first values are is not in it. Throws Error or nlohmann::json::exception for what is no model.
ModelTables model_from_json(const nlohmann::json& object);

}  // namespace pliant::sharded
