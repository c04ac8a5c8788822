// The table of a plugin's options: under its name, under its name without the quotes, or under a misspelt one.
#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.hpp"
#include "config/selector.hpp"

namespace pliant::config {

namespace {

bool has_required_options(const plugin::Plugin& plugin) {
  const std::vector<pliant_option>& options = plugin.options();
  return std::any_of(options.begin(), options.end(),
                     [](const pliant_option& option) { return (option.flags & PLIANT_OPTION_REQUIRED) != 0; });
}

}  // namespace

KeyPath Selector::table_path(const Selection& selection) {
  return {std::string(selection.kind->section), selection.use};
}

std::string Selector::nothing_reads(const Selection& selection, const Member& member) {
  return fmt::format("[{}] is not the section of an installed plugin; nothing reads it",
                     dotted({std::string(selection.kind->section), member.key}));
}

const Member* Selector::unquoted_table(const Value& section, std::string_view name) {
  if (name.find('.') == std::string_view::npos) return nullptr;
  const Member* found = nullptr;
  for (const Value* within = &section; !name.empty(); within = &found->value) {
    const size_t dot = std::min(name.find('.'), name.size());
    found = within->type == Value::Type::kTable ? within->member(name.substr(0, dot)) : nullptr;
    if (found == nullptr) return nullptr;
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  return found != nullptr && found->value.type == Value::Type::kTable ? found : nullptr;
}

const Member* Selector::misspelt_table(const Value& section, const Selection& selection) const {
  if (!has_required_options(*selection.plugin)) return nullptr;
  std::vector<std::string> known = plugin::names(state_.search, *selection.kind);
  known.push_back(selection.use);
  for (const Member& member : section.members) {
    if (member.value.type != Value::Type::kTable || is_link(*selection.kind, member.key)) continue;
    if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
    const auto near = nearest(member.key, known);
    if (!near.empty() && near.front() == selection.use) return &member;
  }
  return nullptr;
}

const Member* Selector::table_of(const Selection& selection) {
  const Value* const parent = section(*selection.kind);
  if (parent == nullptr) return nullptr;
  if (const Member* const member = parent->member(selection.use); member != nullptr) return member;
  const std::string header = dotted(table_path(selection));
  if (const Member* const unquoted = unquoted_table(*parent, selection.use); unquoted != nullptr) {
    diagnostics_.error(unquoted->key_origin, fmt::format("'{}' contains a dot and must be quoted", selection.use),
                       {fmt::format("write [{}]", header)});
    ++understood_;
    return unquoted;
  }
  const Member* const misspelt = misspelt_table(*parent, selection);
  if (misspelt == nullptr) return nullptr;
  diagnostics_.error(misspelt->key_origin, nothing_reads(selection, *misspelt), {fmt::format("write [{}]", header)});
  ++understood_;
  meant_.push_back(misspelt->key);
  return misspelt;
}

}  // namespace pliant::config
