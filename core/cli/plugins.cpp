// pliant plugin list, pliant plugin info
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "actions.hpp"
#include "base/suggest.hpp"
#include "config/open.hpp"
#include "data/lr_link.hpp"
#include "json.hpp"
#include "output.hpp"
#include "plugin/option_values.hpp"
#include "plugin/search.hpp"

namespace pliant::cli {

namespace {

using Json = nlohmann::ordered_json;

std::vector<plugin::SearchDir> search_path(const Invocation& invocation, const std::filesystem::path& file) {
  if (file.empty()) return or_throw(config::search_dirs(invocation.overrides));
  return or_throw(config::open_state(file, {}, invocation.overrides))->search;
}

/// One plugin file, opened.
struct Listed {
  plugin::Found found;
  std::shared_ptr<const plugin::Plugin> plugin;  ///< nullptr when it was refused
  std::string refusal;
};

std::vector<Listed> open_all(const std::vector<plugin::SearchDir>& dirs) {
  std::vector<Listed> all;
  for (plugin::Found& found : plugin::list(dirs)) {
    Listed& listed = all.emplace_back();
    if (!found.shadowed) {
      if (auto opened = plugin::Plugin::open(found.file, *found.kind)) {
        listed.plugin = std::move(*opened);
      } else {
        listed.refusal = opened.error().message();
      }
    }
    listed.found = std::move(found);
  }
  return all;
}

Json as_json(const Listed& listed) {
  Json json;
  json["section"] = listed.found.kind->section;
  json["name"] = listed.found.name;
  json["file"] = listed.found.file.string();
  json["status"] = listed.found.shadowed ? "shadowed" : listed.plugin ? "ok" : "refused";
  if (!listed.refusal.empty()) json["reason"] = listed.refusal;
  if (listed.plugin) {
    json["kind"] = listed.plugin->record().kind;
    json["version"] = listed.plugin->record().version;
    json["summary"] = listed.plugin->record().summary;
  }
  return json;
}

std::string list_text(const std::vector<Listed>& all) {
  std::vector<std::vector<std::string>> rows;
  for (const Listed& listed : all) {
    const std::string name = fmt::format("{}/{}", listed.found.kind->section, listed.found.name);
    if (listed.plugin) {
      rows.push_back({name, listed.plugin->record().version, listed.plugin->record().summary});
    } else {
      rows.push_back({name, listed.found.shadowed ? "shadowed" : "refused", listed.found.file.string()});
    }
  }
  return table(rows);
}

/// Families that a learning-rate rule with its default options is valid for; "" for other kinds and for a rule that has
/// no instance without options.
std::string optimizers_of(const std::shared_ptr<const plugin::Plugin>& opened) {
  if (opened->kind().section != "lr") return {};
  plugin::OptionValues defaults;
  defaults.state().reset(opened->options());
  for (size_t i = 0; i < opened->options().size(); ++i) defaults.state().set_default(i, opened->options()[i]);
  auto made = plugin::Instance::create(opened, defaults);
  if (!made) return {};
  const auto link = data::LrLink::make(std::move(*made));
  return link ? link->optimizers() : std::string();
}

std::string info_text(const std::shared_ptr<const plugin::Plugin>& shown) {
  const plugin::Plugin& opened = *shown;
  const pliant_plugin& record = opened.record();
  std::string text = fmt::format("{} {}: {}\n", record.name, record.version, record.summary);
  std::vector<std::vector<std::string>> rows{
      {"kind", record.kind},
      {"file", opened.file().string()},
      {"saves state", record.save == nullptr ? "no" : "yes"},
      {"options", opened.options().empty() ? "none" : fmt::format("{}", opened.options().size())}};
  if (const std::string optimizers = optimizers_of(shown); !optimizers.empty())
    rows.push_back({"optimizers", optimizers});
  text += table(rows);
  if (opened.options().empty()) return text;
  return text + "\n" + config::defaults_document({std::string(opened.kind().section), record.name}, opened.options());
}

Json info_json(const plugin::Plugin& opened) {
  const pliant_plugin& record = opened.record();
  Json json;
  json["schema"] = "pliant.plugin_info/1";
  json["section"] = opened.kind().section;
  json["name"] = record.name;
  json["kind"] = record.kind;
  json["version"] = record.version;
  json["summary"] = record.summary;
  json["file"] = opened.file().string();
  json["abi_minor"] = record.abi_minor;
  json["min_host_minor"] = record.min_host_minor;
  json["saves_state"] = record.save != nullptr;
  json["options"] = options_json(opened.options());
  return json;
}

/// `sections`: what else `name` could have been.
Error no_such_plugin(const std::string& name, const std::vector<plugin::Found>& all,
                     const std::vector<std::string>& sections) {
  std::vector<std::string> known;
  for (const plugin::Found& found : all) {
    if (!found.shadowed) known.push_back(fmt::format("{}/{}", found.kind->section, found.name));
  }
  std::vector<std::string> words = known;
  for (const plugin::Found& found : all) words.push_back(found.name);
  words.insert(words.end(), sections.begin(), sections.end());
  std::string text = fmt::format("there is no {} '{}'", sections.empty() ? "plugin" : "section or plugin", name);
  if (const auto near = nearest(name, words, 3); !near.empty()) {
    text += fmt::format("\n  did you mean '{}'?", fmt::join(near, "' or '"));
  } else {
    if (!sections.empty()) text += fmt::format("\n  sections: {}", fmt::join(sections, ", "));
    if (!known.empty()) text += fmt::format("\n  installed: {}", fmt::join(known, ", "));
  }
  return {Status::kNotFound, text, Origin::kPlugin};
}

}  // namespace

plugin::Found find_plugin(const std::vector<plugin::SearchDir>& dirs, const std::string& name,
                          const std::vector<std::string>& sections) {
  const std::vector<plugin::Found> all = plugin::list(dirs);
  std::vector<plugin::Found> matches;
  for (const plugin::Found& found : all) {
    const bool meant = found.name == name || fmt::format("{}/{}", found.kind->section, found.name) == name;
    if (meant && !found.shadowed) matches.push_back(found);
  }
  if (matches.empty()) throw no_such_plugin(name, all, sections);
  if (matches.size() == 1) return matches.front();
  std::vector<std::string> names;
  for (const plugin::Found& match : matches) names.push_back(fmt::format("{}/{}", match.kind->section, match.name));
  throw Error(Status::kInvalidArgument, fmt::format("'{}' is ambiguous: write {}", name, fmt::join(names, " or ")),
              Origin::kInput);
}

int list_plugins(const Invocation& invocation, const std::filesystem::path& file) {
  const std::vector<plugin::SearchDir> dirs = search_path(invocation, file);
  const std::vector<Listed> all = open_all(dirs);
  for (const Listed& listed : all) {
    if (!listed.refusal.empty()) complain(invocation, fmt::format("pliant: warning: {}", listed.refusal));
  }
  if (!invocation.json) {
    if (all.empty())
      complain(
          invocation,
          "pliant: no plugins found; name more places to search with --plugin-dir, --config or PLIANT_PLUGIN_PATH");
    return emit(list_text(all));
  }
  Json json;
  json["schema"] = "pliant.plugin_list/1";
  json["searched"] = Json::array();
  for (const plugin::SearchDir& dir : dirs)
    json["searched"].push_back({{"dir", dir.path.string()}, {"named_by", dir.named_by}});
  json["plugins"] = Json::array();
  for (const Listed& listed : all) json["plugins"].push_back(as_json(listed));
  return emit(json.dump() + "\n");
}

int show_plugin(const Invocation& invocation, const std::filesystem::path& file, const std::string& name) {
  const plugin::Found found = find_plugin(search_path(invocation, file), name);
  const auto opened = or_throw(plugin::Plugin::open(found.file, *found.kind));
  return emit(invocation.json ? info_json(*opened).dump() + "\n" : info_text(opened));
}

}  // namespace pliant::cli
