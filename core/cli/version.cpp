// pliant version
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "actions.hpp"
#include "output.hpp"
#include "pliant/abi/base.h"
#include "plugin/plugin.hpp"

namespace pliant::cli {

int show_version(const Invocation& invocation) {
  const std::string abi = fmt::format("{}.{}", PLIANT_ABI_MAJOR, PLIANT_ABI_MINOR);
  if (!invocation.json) return emit(fmt::format("pliant {} (plugin ABI {})\n", PLIANT_VERSION, abi));
  nlohmann::ordered_json json;
  json["schema"] = "pliant.version/1";
  json["version"] = PLIANT_VERSION;
  json["plugin_abi"] = abi;
  json["kinds"] = nlohmann::ordered_json::array();
  for (const plugin::Kind& kind : plugin::kinds()) json["kinds"].push_back(kind.id);
  return emit(json.dump() + "\n");
}

}  // namespace pliant::cli
