// Metrics and evaluations in the JSON of commands.
#pragma once

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "pliant/metric.hpp"

namespace pliant::cli {

/// What is not finite is null.
inline nlohmann::ordered_json json_of(const std::map<std::string, double>& values) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : values) {
    json[name] = std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  }
  return json;
}

inline nlohmann::ordered_json json_of(const Evaluation& one) {
  return {{"step", one.step}, {"ranks", one.ranks}, {"ranks_lost", one.lost}, {"metrics", json_of(one.values)}};
}

}  // namespace pliant::cli
