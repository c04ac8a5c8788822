// Config values as JSON.
#include "config/values/json.hpp"

#include <cmath>

namespace pliant::config {

using Json = nlohmann::ordered_json;

Json to_json(const Value& value) {
  using Type = Value::Type;
  switch (value.type) {
    case Type::kBool:
      return value.boolean;
    case Type::kInt:
      return value.integer;
    case Type::kFloat:
      return std::isfinite(value.real) ? Json(value.real) : Json(nullptr);
    case Type::kString:
    case Type::kDateTime:
      return value.text;
    case Type::kArray: {
      Json list = Json::array();
      for (const Value& item : value.items) list.push_back(to_json(item));
      return list;
    }
    case Type::kTable: {
      Json object = Json::object();
      for (const Member& member : value.members) object[member.key] = to_json(member.value);
      return object;
    }
  }
  return nullptr;
}

}  // namespace pliant::config
