#include "elastic/plugin_files.hpp"

#include <fmt/format.h>

#include <string_view>

#include "base/inside.hpp"
#include "config/state.hpp"
#include "data/digest.hpp"
#include "data/input_file.hpp"

namespace pliant::elastic {
namespace {

std::string digest_of_file(const std::filesystem::path& file) {
  const auto read = data::read_whole(file);
  if (!read) return "unread";
  data::Digest digest;
  digest.add((*read)->bytes());
  return fmt::format("{:016x}", digest.value());
}

}  // namespace

std::vector<std::string> plugin_files(const Config& config) {
  const detail::ConfigState& state = detail::inside(config);
  std::vector<std::string> made;
  const auto add = [&made](const config::Selection& one) {
    if (!one.plugin) return;
    const pliant_plugin& record = one.plugin->record();
    made.push_back(
        fmt::format("{} {} {} {}", one.kind->section, record.name, record.version, digest_of_file(one.plugin->file())));
  };
  for (const std::string_view section : {"sampler", "balancer", "lr", "coordinator"}) {
    if (section == "lr") {
      for (const config::Selection& link : state.lr_schedule) add(link);
    }
    if (const auto found = state.selections.find(section); found != state.selections.end()) add(found->second);
    if (section == "lr") {
      for (const config::Selection& link : state.lr_then) add(link);
    }
  }
  return made;
}

}  // namespace pliant::elastic
