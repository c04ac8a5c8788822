// Writes and reads places.
#include "config/app_places.hpp"

#include <nlohmann/json.hpp>

#include "base/inside.hpp"
#include "config/state.hpp"

namespace pliant::config {

namespace {

using Json = nlohmann::json;

constexpr const char* kPlacesSchema = "pliant.app_places/1";

Json place_of(const ValueOrigin& origin, const Diagnostics& diagnostics) {
  return {diagnostics.where(origin), diagnostics.quote(origin)};
}

void add_places(const Value& table, const KeyPath& path, const Diagnostics& diagnostics, Json& places) {
  for (const Member& member : table.members) {
    KeyPath below = path;
    below.push_back(member.key);
    places.push_back({{"path", below},
                      {"key", place_of(member.key_origin, diagnostics)},
                      {"value", place_of(member.value.origin, diagnostics)}});
    if (member.value.type == Value::Type::kTable) add_places(member.value, below, diagnostics, places);
  }
}

void put_place(const Json& place, ValueOrigin& origin) {
  origin.label = place.at(0).get<std::string>();
  origin.quote = place.at(1).get<std::string>();
}

}  // namespace

std::string app_places(const Config& config) {
  const detail::ConfigState& state = detail::inside(config);
  Json places = Json::array();
  if (const Value* const app = state.root.find("app")) add_places(*app, {}, *state.diagnostics, places);
  const Json text{{"schema", kPlacesSchema}, {"app", std::move(places)}};
  return text.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

void place_app(std::string_view json, Value& root) {
  Value* const app = root.find("app");
  const Json text = Json::parse(json, nullptr, false);
  if (app == nullptr || !text.is_object() || text.value("schema", "") != kPlacesSchema) return;
  try {
    for (const Json& one : text.at("app")) {
      Value* table = app;
      const auto path = one.at("path").get<KeyPath>();
      for (size_t i = 0; table != nullptr && i + 1 < path.size(); ++i) table = table->find(path[i]);
      if (table == nullptr || path.empty()) continue;
      for (Member& member : table->members) {
        if (member.key != path.back()) continue;
        put_place(one.at("key"), member.key_origin);
        put_place(one.at("value"), member.value.origin);
      }
    }
  } catch (const Json::exception&) {  // somebody else's file
    return;
  }
}

}  // namespace pliant::config
