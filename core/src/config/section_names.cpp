// Reporting unknown sections, and reading misspelt ones.
#include "config/section_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/suggest.hpp"
#include "config/options.hpp"
#include "config/sections.hpp"
#include "plugin/plugin.hpp"

namespace pliant::config {

namespace {

constexpr const char* kVersionKey = "config_version";

bool is_section(std::string_view name) {
  const std::vector<std::string>& known = all_sections();
  return std::find(known.begin(), known.end(), name) != known.end();
}

bool can_have(std::string_view section, const Member& member) {
  if (section == "app") return true;
  const bool is_of_kind = plugin::kind_of(section) != nullptr;
  if (is_of_kind && (member.key == "use" || member.key == "path" || member.value.type == Value::Type::kTable)) {
    return true;
  }
  const std::vector<std::string> keys = keys_of(core_options(section));
  return std::find(keys.begin(), keys.end(), member.key) != keys.end();
}

/// The section that `misspelt` was meant to be; empty: nobody knows.
std::string meant_by(const Member& misspelt, const std::vector<std::string>& words) {
  if (misspelt.value.type != Value::Type::kTable) return {};
  const std::vector<std::string> near = nearest(misspelt.key, words);
  if (near.empty() || !is_section(near.front())) return {};
  const std::vector<Member>& members = misspelt.value.members;
  const bool fits =
      std::any_of(members.begin(), members.end(), [&](const Member& one) { return can_have(near.front(), one); });
  return fits ? near.front() : std::string();
}

/// Moves what `from` has and `to` has not.
void merge(Value& to, Value from) {
  for (Member& member : from.members) {
    Value* const there = to.find(member.key);
    if (there == nullptr) {
      to.members.push_back(std::move(member));
    } else if (there->type == Value::Type::kTable && member.value.type == Value::Type::kTable) {
      merge(*there, std::move(member.value));
    }
  }
}

}  // namespace

void check_section_names(Value& root, Diagnostics& diagnostics) {
  std::vector<std::string> words = all_sections();
  words.emplace_back(kVersionKey);
  std::vector<Member> meant;
  for (Member& member : root.members) {
    if (member.key == kVersionKey) continue;
    if (!is_section(member.key)) {
      report_unknown_key(member, {}, words, diagnostics);
      const std::string section = meant_by(member, words);
      if (!section.empty()) meant.push_back({section, member.key_origin, member.value});
    } else if (member.value.type != Value::Type::kTable) {
      diagnostics.error(member.key_origin,
                        fmt::format("'{}' must be a section (a table), not {}", member.key, describe(member.value)),
                        {fmt::format("write [{}] on a line of its own, and its keys below", member.key)});
    }
  }
  Value sections;
  sections.members = std::move(meant);
  merge(root, std::move(sections));
}

}  // namespace pliant::config
