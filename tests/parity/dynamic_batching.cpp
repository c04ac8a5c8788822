// Rows of a dynamic_batching block: import reads it, and the options of the config that comes out are DeepSpeed's.
#include <nlohmann/json.hpp>

#include "base/inside.hpp"
#include "config/state.hpp"
#include "parity/parity.hpp"
#include "parity/python.hpp"
#include "pliant/import.hpp"

namespace pliant::parity {
namespace {

Json as_json(const config::Value& value) {
  return value.type == config::Value::Type::kString ? Json(value.text) : Json(value.integer);
}

/// The options of `config` in the shape of the row's `out`.
Json shaped(const Config& config) {
  Json block{{"enabled", config.use("sampler") == "seqlen"}, {"lr_scaling_method", config.use("lr")}};
  for (const config::Effective& row : pliant::detail::inside(config).selections.at("sampler").table.rows) {
    block[row.option->key] = as_json(row.value);
  }
  return block;
}

/// "None" is DeepSpeed's word for no scaling; no limit is 0 in TOML, which has no null.
Json in_our_words(Json expected) {
  if (expected["lr_scaling_method"] == "None") expected["lr_scaling_method"] = "none";
  if (expected["max_batch_size"].is_null()) expected["max_batch_size"] = 0;
  return expected;
}

Outcome check(const Json& row, Plugins& plugins, const Options&) {
  const Json& out = row.at("out");
  const bool refused = out.contains("error") || !out.at("enabled").get<bool>();
  const Json source{{"data_efficiency", {{"data_sampling", row.at("data_sampling")}}}};
  std::string toml;
  try {
    toml = import_deepspeed(python_json(source), "row").toml;
  } catch (const Error& error) {
    const bool nothing = error.message().find("nothing in this file can be imported") != std::string::npos;
    return refused && nothing != out.contains("error") ? Outcome::passed()
                                                       : Outcome::failed(out.dump(), error.message());
  }
  if (refused) return Outcome::failed(out.dump(), toml);
  const Result<Config> config = plugins.open_config(toml, {"sampler", "lr"});
  if (!config) return Outcome::failed(out.dump(), config.error().message());
  const Json expected = in_our_words(out);
  const Json actual = shaped(*config);
  for (const char* key :
       {"enabled", "max_tokens", "min_batch_size", "max_batch_size", "sequence_picking_order", "lr_scaling_method"}) {
    if (expected.at(key) != actual.at(key)) return Outcome::failed(expected.dump(), actual.dump());
  }
  return Outcome::passed();
}

}  // namespace

std::vector<RowKind> dynamic_batching_rows() {
  const auto matches = [](const Json& row) { return row.contains("kind") && row.at("kind") == "config"; };
  return {{"config", matches, {}, &check}};
}

}  // namespace pliant::parity
