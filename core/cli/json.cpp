// Option tables as JSON.
#include "json.hpp"

#include "config/options.hpp"
#include "config/values/json.hpp"

namespace pliant::cli {

namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Json options_json(const std::vector<pliant_option>& options) {
  Json list = Json::array();
  for (const pliant_option& option : options) {
    Json row;
    row["key"] = option.key;
    row["type"] = config::type_name(option.type);
    config::Value value;
    row["default"] = config::default_of(option, value) ? config::to_json(value) : Json(nullptr);
    row["required"] = (option.flags & PLIANT_OPTION_REQUIRED) != 0;
    const bool integers = option.type == PLIANT_INT || option.type == PLIANT_INT_LIST;
    if ((option.flags & PLIANT_OPTION_HAS_MIN) != 0)
      row["min"] = integers ? Json(option.int_min) : Json(option.float_min);
    if ((option.flags & PLIANT_OPTION_HAS_MAX) != 0)
      row["max"] = integers ? Json(option.int_max) : Json(option.float_max);
    for (uint32_t i = 0; i < option.choice_count; ++i) row["choices"].push_back(option.choices[i]);
    row["unit"] = option.unit;
    row["doc"] = option.doc;
    list.push_back(std::move(row));
  }
  return list;
}

}  // namespace pliant::cli
