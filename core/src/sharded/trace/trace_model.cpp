#include "sharded/trace/trace_model.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sharded/trace/trace_numbers.hpp"

namespace pliant::sharded {
namespace {

/// Names have no characters that JSON would write otherwise (check_name).
void append_parameter(fmt::memory_buffer& to, const ParameterRow& row) {
  fmt::format_to(fmt::appender(to), R"({{"name":"{}","shape":[{}],"frozen":{},"persistent":{},"external":{}}})",
                 row.name, fmt::join(row.shape, ","), row.frozen, row.persistent, row.external);
}

std::vector<std::optional<uint32_t>> parents_of(const ModelTables& model) {
  std::vector<std::optional<uint32_t>> parents(model.modules().size());
  for (uint32_t number = 0; number < parents.size(); ++number) {
    for (const uint32_t child : model.modules()[number].children) parents[child] = number;
  }
  return parents;
}

std::vector<ParameterId> ids_in(const nlohmann::json& numbers) {
  std::vector<ParameterId> made;
  for (const nlohmann::json& number : numbers) made.push_back(ParameterId{whole_number<uint32_t>(number)});
  return made;
}

}  // namespace

void append_model(fmt::memory_buffer& to, const ModelTables& model) {
  const auto add = [&to](std::string_view text) { to.append(text); };
  add(R"({"parameters":[)");
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    add(i == 0 ? "\n" : ",\n");
    append_parameter(to, model.parameters()[i]);
  }
  add(R"(],"modules":[)");
  const std::vector<std::optional<uint32_t>> parents = parents_of(model);
  for (size_t i = 0; i < model.modules().size(); ++i) {
    const ModuleRow& row = model.modules()[i];
    add(i == 0 ? "\n" : ",\n");
    fmt::format_to(fmt::appender(to), R"({{"name":"{}","parent":{},"own":[{}],"external":[{}],"leaf":{}}})", row.name,
                   parents[i] ? std::to_string(*parents[i]) : "null", fmt::join(row.own, ","),
                   fmt::join(row.external, ","), row.leaf);
  }
  add("]}");
}

ModelTables model_from_json(const nlohmann::json& object) {
  ModelTables made;
  for (const nlohmann::json& row : object.at("parameters")) {
    ParameterSpec spec;
    spec.name = row.at("name").get<std::string>();
    for (const nlohmann::json& size : row.at("shape")) spec.shape.push_back(whole_number<int64_t>(size));
    spec.frozen = row.at("frozen").get<bool>();
    spec.persistent = row.at("persistent").get<bool>();
    spec.external = row.at("external").get<bool>();
    spec.initialise = [](std::span<float>) {};
    made.add(std::move(spec));
  }
  for (const nlohmann::json& row : object.at("modules")) {
    ModuleSpec spec;
    spec.name = row.at("name").get<std::string>();
    if (!row.at("parent").is_null()) spec.parent = ModuleId{whole_number<uint32_t>(row.at("parent"))};
    spec.own = ids_in(row.at("own"));
    spec.external = ids_in(row.at("external"));
    spec.leaf = row.at("leaf").get<bool>();
    made.add(std::move(spec));
  }
  made.close();
  return made;
}

}  // namespace pliant::sharded
