// ElasticityBlock: the elastic part of a config as data, with a digest that is the same on every machine.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.hpp"
#include "pliant/config.hpp"

namespace pliant {

struct ElasticityBlock {
  std::string policy;       ///< what `use` says
  std::string version;      ///< of the plugin
  nlohmann::json options;   ///< every option with its value, defaults included; an option without a value is null
  nlohmann::json defaults;  ///< the same keys; null for an option without a default

  /// {"options":{...},"policy":"v0.1","version":"0.1.0"}: keys sorted, no spaces, ASCII.
  [[nodiscard]] std::string canonical() const;
  /// FNV-1a, 64 bits, over the bytes of canonical(), as 16 hex digits.
  [[nodiscard]] std::string digest() const;
};

/// Of a config that was opened with the need "elasticity".
Result<ElasticityBlock> elasticity_block(const Config& config);

}  // namespace pliant
