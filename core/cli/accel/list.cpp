// pliant accel list
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "accel/actions.hpp"
#include "accel/bench.hpp"
#include "config/open.hpp"
#include "output.hpp"
#include "plugin/plugin.hpp"
#include "plugin/search.hpp"

namespace pliant::cli {

namespace {

using Json = nlohmann::ordered_json;

/// One accelerator plugin, opened.
struct Listed {
  plugin::Found found;
  std::string version;
  bool collectives = false;
  std::vector<DeviceSeen> devices;
  std::string missing;  ///< why there are no devices, as far as the plugin says
  std::string refusal;  ///< why it could not be opened or asked; empty: it was
};

Listed look_at(plugin::Found found, const Invocation& invocation, const ConfigText& given) {
  Listed listed;
  listed.found = std::move(found);
  if (listed.found.shadowed) return listed;
  try {
    const Accelerator accelerator(accelerator_config(invocation, given, listed.found.name));
    listed.version = version_of(accelerator);
    listed.collectives = has_native_collectives(accelerator);
    const int32_t count = accelerator.device_count();
    for (int32_t device = 0; device < count; ++device) listed.devices.push_back(see_device(accelerator, device));
    if (count == 0) listed.missing = accelerator.why_no_devices();
  } catch (const Error& error) {
    listed.refusal = error.message();
  }
  return listed;
}

std::vector<std::string> capabilities_of(const DeviceSeen& device) {
  std::vector<std::string> names;
  if (device.host_visible) names.emplace_back("host_visible");
  if (device.fixed_order) names.emplace_back("fixed_order");
  if (device.shared_memory) names.emplace_back("shared_memory");
  if (device.exchange_memory) names.emplace_back("exchange_memory");
  if (device.window_memory) names.emplace_back("window_memory");
  return names;
}

Json as_json(const Listed& listed) {
  Json json;
  json["name"] = listed.found.name;
  json["file"] = listed.found.file.string();
  json["status"] = listed.found.shadowed ? "shadowed" : listed.refusal.empty() ? "ok" : "refused";
  if (!listed.refusal.empty()) json["reason"] = listed.refusal;
  if (listed.found.shadowed || !listed.refusal.empty()) return json;
  json["version"] = listed.version;
  json["collectives"] = listed.collectives;
  json["devices"] = Json::array();
  if (!listed.missing.empty()) json["missing"] = listed.missing;
  for (const DeviceSeen& device : listed.devices) {
    json["devices"].push_back(
        {{"name", device.name}, {"memory_bytes", device.memory_bytes}, {"capabilities", capabilities_of(device)}});
  }
  return json;
}

std::string list_text(const std::vector<Listed>& all) {
  std::vector<std::vector<std::string>> rows;
  for (const Listed& listed : all) {
    if (listed.found.shadowed || !listed.refusal.empty()) {
      rows.push_back({listed.found.name, listed.found.shadowed ? "shadowed" : "refused", listed.found.file.string()});
      continue;
    }
    const std::string collectives = listed.collectives ? "collectives" : "no collectives";
    if (listed.devices.empty()) {
      rows.push_back(
          {listed.found.name, listed.version, "0 devices", "", listed.missing.empty() ? collectives : listed.missing});
    }
    for (size_t i = 0; i < listed.devices.size(); ++i) {
      const DeviceSeen& device = listed.devices[i];
      std::string abilities = collectives;
      for (const std::string& name : capabilities_of(device)) abilities += ", " + name;
      rows.push_back({listed.found.name, listed.version, fmt::format("device {}: {}", i, device.name),
                      size_text(device.memory_bytes), abilities});
    }
  }
  return table(rows);
}

/// One that the config names by its path comes before those of the same name.
void add_chosen(const std::optional<ChosenAccelerator>& chosen, std::vector<plugin::Found>& all) {
  if (!chosen) return;
  for (plugin::Found& found : all) {
    if (found.kind->section != "accelerator" || found.name != chosen->name) continue;
    std::error_code missing;  // then opening it says so
    if (std::filesystem::equivalent(found.file, chosen->file, missing)) return;
    found.shadowed = true;
  }
  all.insert(all.begin(), {plugin::kind_of("accelerator"), chosen->name, chosen->file, false});
}

}  // namespace

int list_accelerators(const Invocation& invocation, const std::filesystem::path& file) {
  const ConfigText given = read_config(invocation, file);
  const std::vector<plugin::SearchDir> dirs =
      file.empty() ? or_throw(config::search_dirs(invocation.overrides))
                   : or_throw(config::open_text(given.text, given.file, {}, invocation.overrides))->search;
  std::vector<plugin::Found> found_files = plugin::list(dirs);
  if (!file.empty()) add_chosen(chosen_accelerator(invocation, given), found_files);
  std::vector<Listed> all;
  for (plugin::Found& found : found_files) {
    if (found.kind->section == "accelerator") all.push_back(look_at(std::move(found), invocation, given));
  }
  for (const Listed& listed : all) {
    if (!listed.refusal.empty()) complain(invocation, fmt::format("pliant: warning: {}", listed.refusal));
  }
  if (!invocation.json) {
    if (all.empty()) {
      complain(invocation,
               "pliant: no accelerators found; name more places to search with --plugin-dir, --config or "
               "PLIANT_PLUGIN_PATH");
    }
    return emit(list_text(all));
  }
  Json json;
  json["schema"] = "pliant.accel_list/1";
  json["searched"] = Json::array();
  for (const plugin::SearchDir& dir : dirs)
    json["searched"].push_back({{"dir", dir.path.string()}, {"named_by", dir.named_by}});
  json["accelerators"] = Json::array();
  for (const Listed& listed : all) json["accelerators"].push_back(as_json(listed));
  return emit(json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n");
}

}  // namespace pliant::cli
