#include "config/values/changes.hpp"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

#include "config/values/parse.hpp"

namespace pliant::config {

namespace {

/// Values as TOML, by dotted key.
using Leaves = std::map<std::string, std::string>;

void add_leaves(const KeyPath& path, const Value& value, Leaves& leaves) {
  if (value.type != Value::Type::kTable) {
    leaves[dotted(path)] = to_toml(value);
    return;
  }
  for (const Member& member : value.members) {
    KeyPath below = path;
    below.push_back(member.key);
    add_leaves(below, member.value, leaves);
  }
}

std::optional<Leaves> batch_options(std::string_view toml) {
  Diagnostics unread("", toml);
  const std::optional<Value> document = parse_document(toml, unread);
  if (!document) return std::nullopt;
  Leaves leaves;
  for (const KeyPath& path : {KeyPath{"sampler"}, KeyPath{"data"}, KeyPath{"run", "seed"}}) {
    if (const Value* value = at(*document, path)) add_leaves(path, *value, leaves);
  }
  leaves.erase("sampler.path");  // where the plugin lies
  return leaves;
}

}  // namespace

std::vector<std::string> changed_batch_options(std::string_view before, std::string_view now) {
  const auto old_leaves = batch_options(before);
  const auto new_leaves = batch_options(now);
  if (!old_leaves || !new_leaves) return {};
  std::map<std::string, std::pair<std::string, std::string>> both;  // now, before
  for (const auto& [key, value] : *new_leaves) both[key].first = value;
  for (const auto& [key, value] : *old_leaves) both[key].second = value;
  const auto use = both.find("sampler.use");
  const bool other_sampler = use != both.end() && use->second.first != use->second.second;
  const auto shown = [](const std::string& value) { return value.empty() ? "not set" : value; };
  std::vector<std::string> changes;
  for (const auto& [key, values] : both) {
    const bool of_sampler = key.rfind("sampler.", 0) == 0 && key != "sampler.use";
    if (values.first == values.second || (other_sampler && of_sampler)) continue;
    changes.push_back(fmt::format("{} = {} (was {})", key, shown(values.first), shown(values.second)));
  }
  return changes;
}

}  // namespace pliant::config
