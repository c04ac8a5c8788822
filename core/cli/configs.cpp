// pliant config show, check and defaults
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "actions.hpp"
#include "base/suggest.hpp"
#include "config/lr_groups.hpp"
#include "config/open.hpp"
#include "config/values/json.hpp"
#include "config_findings.hpp"
#include "json.hpp"
#include "output.hpp"
#include "pliant/exit_code.hpp"

namespace pliant::cli {

namespace {

using Json = nlohmann::ordered_json;

config::StatePtr open_whole(const Invocation& invocation, const std::filesystem::path& file) {
  return or_throw(config::open_state(file, {}, invocation.overrides, true));
}

/// Opens every section and looks for what would stop a run before it starts.
Result<config::StatePtr> open_and_check(const Invocation& invocation, const std::filesystem::path& file) {
  config::Examined examined = config::examine(file, invocation.overrides);
  if (const std::optional<Error> found = run_findings(examined)) return tl::unexpected<Error>(*found);
  return std::move(examined.state);
}

std::string checked_text(const std::filesystem::path& file, const detail::ConfigState& state) {
  std::string text = fmt::format("{}: ok\n", file.string());
  std::vector<std::vector<std::string>> rows;
  for (const auto& [section, selection] : state.selections) {
    rows.push_back(
        {"  " + section, selection.use, selection.plugin ? selection.plugin->file().string() : "not opened"});
  }
  text += table(rows);
  const config::Value* app = state.root.find("app");
  if (app != nullptr && !app->members.empty())
    text += "  [app] is the program's: it checks these keys when it starts\n";
  return text;
}

Json checked_json(const detail::ConfigState& state) {
  Json json;
  json["schema"] = "pliant.config_check/1";
  json["ok"] = true;
  json["plugins"] = Json::object();
  for (const auto& [section, selection] : state.selections) {
    json["plugins"][section] = {{"use", selection.use}, {"file", selection.file.string()}};
  }
  json["warnings"] = config::warnings(state);
  return json;
}

/// Core's own sections that have options.
std::string section_defaults(const std::string& section) {
  std::string text = config::defaults_document({section}, config::core_options(section));
  if (section == "lr") text += fmt::format("\n[lr.{}]\n# {}\n", config::kLrGroups, config::kLrGroupsHelp);
  return text;
}

std::string core_defaults() {
  std::string text = "config_version = 1\n";
  for (const std::string& section : config::core_sections()) text += "\n" + section_defaults(section);
  return text;
}

Json section_json(const std::string& name, const std::vector<pliant_option>& options) {
  return {{"name", name}, {"options", options_json(options)}};
}

Json defaults_answer(Json sections) {
  Json json;
  json["schema"] = "pliant.config_defaults/1";
  json["sections"] = std::move(sections);
  return json;
}

}  // namespace

int show_config(const Invocation& invocation, const std::filesystem::path& file, bool origins) {
  const config::StatePtr state = open_whole(invocation, file);
  for (const std::string& warning : config::warnings(*state)) complain(invocation, warning);
  if (!invocation.json) return emit(config::to_document(*state, origins));
  Json json;
  json["schema"] = "pliant.config_show/1";
  json["file"] = state->file.string();
  json["values"] = Json::array();
  for (const config::Shown& shown : config::effective(*state)) {
    json["values"].push_back(
        {{"key", config::dotted(shown.path)}, {"value", config::to_json(shown.value)}, {"origin", shown.origin}});
  }
  return emit(json.dump() + "\n");
}

int check_config(const Invocation& invocation, const std::filesystem::path& file) {
  auto opened = open_and_check(invocation, file);
  if (!opened && invocation.json) {
    const Json json{{"schema", "pliant.config_check/1"}, {"ok", false}, {"message", opened.error().message()}};
    const int written = emit(json.dump() + "\n");
    return written != 0 ? written : static_cast<int>(exit_code_of(opened.error()));
  }
  const config::StatePtr state = or_throw(std::move(opened));
  if (invocation.json) return emit(checked_json(*state).dump() + "\n");
  for (const std::string& warning : config::warnings(*state)) complain(invocation, warning);
  return emit(checked_text(file, *state));
}

int show_defaults(const Invocation& invocation, const std::string& name) {
  const std::vector<std::string>& sections = config::core_sections();
  if (name.empty()) {
    if (!invocation.json) return emit(core_defaults());
    Json all = Json::array();
    for (const std::string& section : sections) all.push_back(section_json(section, config::core_options(section)));
    return emit(defaults_answer(std::move(all)).dump() + "\n");
  }
  if (std::find(sections.begin(), sections.end(), name) != sections.end()) {
    const std::vector<pliant_option>& options = config::core_options(name);
    return emit(invocation.json ? defaults_answer(Json::array({section_json(name, options)})).dump() + "\n"
                                : section_defaults(name));
  }
  const plugin::Found found =
      find_plugin(or_throw(config::search_dirs(invocation.overrides)), name, config::core_sections());
  const auto opened = or_throw(plugin::Plugin::open(found.file, *found.kind));
  const std::string section(found.kind->section);
  return emit(invocation.json
                  ? defaults_answer(Json::array({section_json(section + "/" + found.name, opened->options())})).dump() +
                        "\n"
                  : config::defaults_document({section, found.name}, opened->options()));
}

}  // namespace pliant::cli
