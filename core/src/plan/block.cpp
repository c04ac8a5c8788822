// Reads the elasticity block out of a config, and writes it in its canonical form.
#include "plan/block.hpp"

#include <fmt/format.h>

#include "base/inside.hpp"
#include "config/options.hpp"
#include "config/state.hpp"
#include "config/values/json.hpp"

namespace pliant {

std::string ElasticityBlock::canonical() const {
  const nlohmann::json whole{{"policy", policy}, {"version", version}, {"options", options}};
  return whole.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string ElasticityBlock::digest() const {
  constexpr uint64_t kOffsetBasis = 0xcbf29ce484222325U;
  constexpr uint64_t kPrime = 0x100000001b3U;
  uint64_t hash = kOffsetBasis;
  for (const char byte : canonical()) hash = (hash ^ static_cast<unsigned char>(byte)) * kPrime;
  return fmt::format("{:016x}", hash);
}

Result<ElasticityBlock> elasticity_block(const Config& config) {
  const auto found = detail::inside(config).selections.find("elasticity");
  if (found == detail::inside(config).selections.end() || found->second.plugin == nullptr) {
    return failed(
        Status::kFailedPrecondition,
        fmt::format("{}: the plugin of [elasticity] was not opened; Config::open was not asked for this section",
                    config.file().string()));
  }
  const config::Selection& selection = found->second;
  ElasticityBlock block;
  block.policy = selection.use;
  block.version = selection.plugin->record().version;
  block.options = nlohmann::json::object();
  block.defaults = nlohmann::json::object();
  for (const config::Effective& row : selection.table.rows) {
    config::Value standard;
    const bool has_default = config::default_of(*row.option, standard);
    block.defaults[row.option->key] = has_default ? nlohmann::json(config::to_json(standard)) : nlohmann::json();
    block.options[row.option->key] =
        row.is_set || has_default ? nlohmann::json(config::to_json(row.value)) : nlohmann::json();
  }
  return block;
}

}  // namespace pliant
