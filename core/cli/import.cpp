// pliant config import: a DeepSpeed config becomes a pliant.toml.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "actions.hpp"
#include "base/result.hpp"
#include "base/whole_file.hpp"
#include "config/values/source.hpp"
#include "output.hpp"
#include "pliant/import.hpp"

namespace pliant::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string import_json(const ImportedConfig& imported) {
  Json json;
  json["schema"] = "pliant.config_import/1";
  json["toml"] = imported.toml;
  json["carried"] = Json::array();
  for (const auto& [from, to] : imported.carried) json["carried"].push_back({{"from", from}, {"to", to}});
  json["not_carried"] = Json::array();
  for (const auto& [key, reason] : imported.not_carried) {
    json["not_carried"].push_back({{"key", key}, {"reason", reason}});
  }
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace

int import_config(const Invocation& invocation, const ImportArguments& arguments) {
  if (!invocation.overrides.sets.empty()) {
    throw Error(Status::kInvalidArgument, "--set has no effect here; give it to the command that reads the TOML",
                Origin::kInput);
  }
  if (arguments.force && arguments.output.empty()) {
    throw Error(Status::kInvalidArgument, "--force overwrites the file of --output; give --output, too",
                Origin::kInput);
  }
  const std::string text = or_throw(config::read_text(arguments.source));
  const ImportedConfig imported =
      import_deepspeed(text, arguments.source.string(), arguments.output.empty() ? "FILE" : arguments.output.string());
  if (!arguments.output.empty()) or_throw(write_whole(arguments.output, imported.toml, arguments.force));
  if (!invocation.quiet) {
    for (const NotCarriedBlock& block : by_block(imported.not_carried)) {
      complain(invocation, "note: not carried: " + line_of(block));
    }
  }
  if (invocation.json) return emit(import_json(imported));
  return arguments.output.empty() ? emit(imported.toml) : 0;
}

}  // namespace pliant::cli
