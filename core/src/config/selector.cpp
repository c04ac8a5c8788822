// From `use = "name"` to an opened plugin with checked options.
#include "config/selector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/environment.hpp"
#include "base/suggest.hpp"
#include "config/lr_groups.hpp"
#include "plugin/option_values.hpp"
#include "plugin/record_check.hpp"

namespace pliant::config {

namespace fs = std::filesystem;

namespace {

std::string there_are(const std::vector<std::string>& names) {
  if (names.empty())
    return "no plugin of this kind is installed; --plugin-dir or [plugins] dirs name more places to search";
  return fmt::format("installed: {}", fmt::join(names, ", "));
}

/// A table that core itself reads.
bool is_of_core(const plugin::Kind& kind, const Member& member) {
  return kind.section == "lr" && member.key == kLrGroups;
}

/// True when the section itself speaks of a plugin.
bool speaks_of_plugin(const plugin::Kind& kind, const Value& section) {
  return std::any_of(section.members.begin(), section.members.end(), [&kind](const Member& member) {
    return member.key == "path" || (member.value.type == Value::Type::kTable && !is_of_core(kind, member));
  });
}

/// True when an option that the plugin requires was not given.
bool lacks_options(const Selection& selection) {
  return std::any_of(selection.table.rows.begin(), selection.table.rows.end(), [](const Effective& row) {
    return (row.option->flags & PLIANT_OPTION_REQUIRED) != 0 && !row.is_set;
  });
}

}  // namespace

const Value* Selector::section(const plugin::Kind& kind) const {
  const Value* found = state_.root.find(kind.section);
  return found == nullptr || found->type != Value::Type::kTable ? nullptr : found;
}

size_t Selector::select(const plugin::Kind& kind, const ConfigNeeds& needs, bool every_section) {
  const Value* table = section(kind);
  if (state_.root.find(kind.section) != nullptr && table == nullptr) return 0;  // reported already
  const bool needed = needs.contains(kind.section) || (every_section && table != nullptr);
  Selection selection;
  selection.kind = &kind;
  if (table == nullptr && !needed) {
    environment_.ignore_below({std::string(kind.section)});
    return 0;
  }
  meant_.clear();
  understood_ = 0;
  const bool chosen = choose(selection, needed);
  if (chosen && needed && open(selection, true)) configure(selection);
  if (chosen && kind.section == "lr") select_links(selection, needed);
  if (chosen && selection.plugin == nullptr) environment_.apply_below(table_path(selection), state_.root);
  check_keys(selection);
  check_unused_tables(selection, needed && chosen);
  if (chosen) state_.selections.emplace(std::string(kind.section), std::move(selection));
  return understood_;
}

bool Selector::choose(Selection& selection, bool needed) {
  const plugin::Kind& kind = *selection.kind;
  const Value* table = section(kind);
  const Value* use = table == nullptr ? nullptr : table->find("use");
  if (use == nullptr) {
    const bool open_question = table != nullptr && speaks_of_plugin(kind, *table);
    selection.use = open_question ? "" : std::string(kind.default_use);
    if (selection.use.empty() && needed) report_no_choice(kind);
    return !selection.use.empty();
  }
  selection.use_origin = use->origin;
  const std::string name = use->type == Value::Type::kString ? use->text : use->raw;
  if (plugin::valid_plugin_name(name)) {
    selection.use = name;
    return true;
  }
  diagnostics_.error(use->origin,
                     fmt::format("{}.use must be the name of a plugin, not {}", kind.section, describe(*use)),
                     {there_are(plugin::names(state_.search, kind))});
  return false;
}

void Selector::report_no_choice(const plugin::Kind& kind) {
  const Value* table = section(kind);
  const std::vector<std::string> names = plugin::names(state_.search, kind);
  const std::string example = names.empty() ? "NAME" : names.front();
  if (table == nullptr) {
    return diagnostics_.error(
        {}, fmt::format("there is no [{}] section, and this command needs one", kind.section),
        {fmt::format("write [{}] and below it use = \"{}\"", kind.section, example), there_are(names)});
  }
  diagnostics_.error(state_.root.member(kind.section)->key_origin,
                     fmt::format("[{}] does not name the plugin to use", kind.section),
                     {fmt::format("write use = \"{}\" below [{}]", example, kind.section), there_are(names)});
}

void Selector::report(const ValueOrigin& origin, const Error& error) {
  Finding finding;
  finding.origin = origin;
  finding.error_origin = error.origin();
  finding.status = error.status();
  std::istringstream lines(error.message());
  std::getline(lines, finding.message);
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, std::min(line.find_first_not_of(' '), line.size()));
    finding.notes.push_back(std::move(line));
  }
  diagnostics_.add(std::move(finding));
}

bool Selector::open(Selection& selection, bool by_path) {
  const plugin::Kind& kind = *selection.kind;
  const Value* table = section(kind);
  const Value* path = table == nullptr || !by_path || elevated() ? nullptr : table->find("path");
  if (path != nullptr && path->type != Value::Type::kString) {
    diagnostics_.error(path->origin,
                       fmt::format("{}.path must be the path of a plugin file, not {}", kind.section, describe(*path)));
    return false;
  }
  if (path != nullptr) {
    selection.file = absolute_from(*path, state_.file.parent_path());
  } else {
    Result<fs::path> found = plugin::find(state_.search, kind, selection.use);
    if (!found) {
      report(selection.use_origin, found.error());
      return false;
    }
    selection.file = *found;
  }
  const ValueOrigin& origin = path != nullptr ? path->origin : selection.use_origin;
  auto opened = plugin::Plugin::open(selection.file, kind);
  if (!opened) {
    report(origin, opened.error());
    return false;
  }
  if ((*opened)->record().name != selection.use) {
    report(origin, Error(Status::kFailedPrecondition,
                         fmt::format("plugin {} calls itself '{}', but use says '{}'", selection.file.string(),
                                     (*opened)->record().name, selection.use),
                         Origin::kPlugin));
    return false;
  }
  selection.plugin = std::move(*opened);
  return true;
}

void Selector::configure(Selection& selection) {
  const KeyPath path = table_path(selection);
  const std::vector<pliant_option>& options = selection.plugin->options();
  for (const std::string& key : keys_of(options)) {
    KeyPath whole = path;
    whole.push_back(key);
    environment_.apply(whole, state_.root);
  }
  const Member* member = table_of(selection);
  const Value* table = member == nullptr ? nullptr : &member->value;
  ValueOrigin fallback = member != nullptr ? member->key_origin : selection.use_origin;
  if (table != nullptr && table->type != Value::Type::kTable) {
    diagnostics_.error(fallback, fmt::format("[{}] must be a table, not {}", dotted(path), describe(*table)));
    table = nullptr;
  }
  if (table != nullptr) {
    const std::vector<std::string> known = keys_of(options);
    for (const Member& given : table->members) {
      if (std::find(known.begin(), known.end(), given.key) == known.end()) {
        std::vector<std::string> notes;
        if (known.empty()) notes.push_back(fmt::format("plugin '{}' has no options", selection.use));
        report_unknown_key(given, path, known, diagnostics_, std::move(notes));
      }
    }
  }
  selection.table = check_options(options, table, path, fallback, diagnostics_);
  find_row_files(selection.table);
}

void Selector::find_row_files(CheckedTable& table) const {
  for (size_t i = 0; i < table.rows.size(); ++i) {
    Effective& row = table.rows[i];
    if (!is_row_file(*row.option) || !row.is_set || row.value.text.empty()) continue;
    row.value.text = absolute_from(row.value, state_.file.parent_path()).string();
    table.values.state().set_text(i, row.value.text);
  }
}

void Selector::check_keys(const Selection& selection) {
  const std::string name(selection.kind->section);
  const Value* table = section(*selection.kind);
  if (table == nullptr) return;
  std::vector<std::string> known{"use", "path"};
  for (const std::string& key : keys_of(core_options(name))) known.push_back(key);
  for (const Member& member : table->members) {
    if (member.value.type == Value::Type::kTable || member.key == selection.use) continue;
    if (is_of_core(*selection.kind, member)) continue;  // reported already
    if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
    std::vector<std::string> notes;
    if (selection.plugin != nullptr) {
      const std::vector<std::string> own = keys_of(selection.plugin->options());
      if (std::find(own.begin(), own.end(), member.key) != own.end()) {
        notes.push_back(fmt::format("it is an option of plugin '{}': write it below [{}]", selection.use,
                                    dotted(table_path(selection))));
      }
    }
    report_unknown_key(member, {name}, known, diagnostics_, std::move(notes));
  }
}

void Selector::check_unused_tables(const Selection& selection, bool needed) {
  const plugin::Kind& kind = *selection.kind;
  const std::string name(kind.section);
  std::vector<std::string> known = plugin::names(state_.search, kind);
  for (const std::string& other : known) {
    if (other != selection.use && !is_link(kind, other)) environment_.ignore_below({name, other});
  }
  const Value* table = section(kind);
  if (table == nullptr) return;
  if (!selection.use.empty()) known.push_back(selection.use);
  for (const Member& member : table->members) {
    if (member.value.type != Value::Type::kTable || member.key == selection.use || is_link(kind, member.key)) continue;
    if (is_of_core(kind, member)) continue;
    environment_.ignore_below({name, member.key});
    if (!needed || std::find(meant_.begin(), meant_.end(), member.key) != meant_.end()) continue;
    if (std::find(known.begin(), known.end(), member.key) != known.end()) {
      check_unused_table(kind, member);
    } else {
      report_idle_table(selection, member, known);
    }
  }
}

void Selector::check_unused_table(const plugin::Kind& kind, const Member& member) {
  const KeyPath path{std::string(kind.section), member.key};
  const auto file = plugin::find(state_.search, kind, member.key);
  if (!file) return;
  const auto opened = plugin::Plugin::open(*file, kind);
  if (!opened) return;  // it is not in use: no reason to stop
  const std::vector<std::string> keys = keys_of((*opened)->options());
  for (const Member& given : member.value.members) {
    if (std::find(keys.begin(), keys.end(), given.key) == keys.end())
      report_unknown_key(given, path, keys, diagnostics_);
  }
  std::vector<pliant_option> options = (*opened)->options();
  for (pliant_option& option : options) option.flags &= ~uint32_t{PLIANT_OPTION_REQUIRED};  // it may stay unfinished
  check_options(options, &member.value, path, member.key_origin, diagnostics_);
}

void Selector::report_idle_table(const Selection& selection, const Member& member,
                                 const std::vector<std::string>& known) {
  const Value* const table = section(*selection.kind);
  for (const std::string& name : known) {
    const bool begins_it = name.rfind(member.key + ".", 0) == 0;
    if (!begins_it || table == nullptr || unquoted_table(*table, name) == nullptr) continue;
    if (name == selection.use) return;  // reported where it was configured
    diagnostics_.warning(member.key_origin, fmt::format("'{}' contains a dot and must be quoted", name),
                         {fmt::format("write [{}]", dotted({std::string(selection.kind->section), name}))});
    return;
  }
  std::vector<std::string> notes{fmt::format("'{}' is in use", selection.use)};
  const auto near = nearest(member.key, known);
  if (!near.empty()) notes.push_back(fmt::format("did you mean '{}'?", near.front()));
  std::string message = nothing_reads(selection, member);
  // A file may carry tables for plugins of another machine; what was typed for this very call may not.
  // Nor may a table that the plugin in use waits for: it is what the missing options stand in.
  const bool typed = member.key_origin.layer > Layer::kFile;
  const bool missed = !near.empty() && near.front() == selection.use && lacks_options(selection);
  if (missed) notes = {fmt::format("write [{}]", dotted(table_path(selection)))};
  if (typed || missed) return diagnostics_.error(member.key_origin, std::move(message), std::move(notes));
  diagnostics_.warning(member.key_origin, std::move(message), std::move(notes));
}

}  // namespace pliant::config
