// The effective config, key by key: for `config show`, for the copy that a run keeps, and for `config defaults`.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "config/open.hpp"

namespace pliant::config {

namespace {

constexpr size_t kCommentColumn = 40;

/// Collects keys in the order in which a document shows them.
class Listing {
 public:
  explicit Listing(const detail::ConfigState& state) : state_(state) {}

  std::vector<Shown> run() {
    add({"config_version"}, Value::of(int64_t{1}), state_.root.find("config_version")->origin);
    add_search_dirs();
    for (const plugin::Kind& kind : plugin::kinds()) add_plugin_section(std::string(kind.section));
    if (state_.root.find("data") != nullptr) add_table(state_.core_tables.at("data"));
    add_table(state_.core_tables.at("run"));
    if (const Value* app = state_.root.find("app")) add_raw({"app"}, *app);
    return std::move(all_);
  }

 private:
  void add(KeyPath path, Value value, const ValueOrigin& origin) {
    all_.push_back({std::move(path), std::move(value),
                    origin.layer == Layer::kDefault ? "default" : state_.diagnostics->where(origin)});
  }

  void add_table(const CheckedTable& table) {
    for (const Effective& row : table.rows) {
      if (!row.is_set) continue;
      KeyPath path = table.path;
      path.emplace_back(row.option->key);
      add(std::move(path), row.value, row.value.origin);
    }
  }

  void add_raw(const KeyPath& path, const Value& value) {
    if (value.type != Value::Type::kTable) return add(path, value, value.origin);
    for (const Member& member : value.members) {
      KeyPath below = path;
      below.push_back(member.key);
      add_raw(below, member.value);
    }
  }

  /// All of the search path, so that the document finds the same plugins from another program and without the
  /// environment.
  void add_search_dirs() {
    Value dirs = Value::of(std::vector<std::string>());
    for (const plugin::SearchDir& dir : state_.search) dirs.items.push_back(Value::of(dir.path.string()));
    const CheckedTable& table = state_.core_tables.at("plugins");
    add({"plugins", "dirs"}, std::move(dirs), table.rows.front().value.origin);
  }

  void add_plugin_section(const std::string& section) {
    const Value* table = state_.root.find(section);
    const auto found = state_.selections.find(section);
    if (table == nullptr) return;  // the default is found again without being written down
    const Selection* selection = found == state_.selections.end() ? nullptr : &found->second;
    if (selection != nullptr) {
      add({section, "use"}, Value::of(selection->use), selection->use_origin);
      add_file(section, *table, *selection);
    }
    const auto core = state_.core_tables.find(section);
    if (core != state_.core_tables.end()) add_table(core->second);
    if (selection != nullptr && selection->plugin != nullptr) add_table(selection->table);
    std::vector<std::string> links;
    if (section == "lr") {
      for (const auto* chain : {&state_.lr_schedule, &state_.lr_then}) {
        for (const Selection& link : *chain) {
          add_table(link.table);
          links.push_back(link.use);
        }
      }
    }
    for (const Member& member : table->members) {
      const bool shown = (selection != nullptr && selection->plugin != nullptr && member.key == selection->use) ||
                         std::find(links.begin(), links.end(), member.key) != links.end();
      if (member.value.type == Value::Type::kTable && !shown) add_raw({section, member.key}, member.value);
    }
  }

  void add_file(const std::string& section, const Value& table, const Selection& selection) {
    const Value* path = table.find("path");
    std::string file = selection.file.string();
    if (file.empty()) {
      const auto looked_up = plugin::find(state_.search, *selection.kind, selection.use);
      if (path == nullptr && !looked_up) return;
      file =
          path == nullptr ? looked_up->string() : (state_.file.parent_path() / path->text).lexically_normal().string();
    }
    add({section, "path"}, Value::of(file), path == nullptr ? ValueOrigin{} : path->origin);
  }

  const detail::ConfigState& state_;
  std::vector<Shown> all_;
};

std::string commented(std::string line, const std::string& comment) {
  if (comment.empty()) return line;
  line.resize(std::max(line.size() + 2, kCommentColumn), ' ');
  return line + "# " + comment;
}

}  // namespace

std::vector<Shown> effective(const detail::ConfigState& state) {
  return Listing(state).run();
}

std::string to_document(const detail::ConfigState& state, bool origins) {
  std::vector<std::pair<KeyPath, std::string>> tables;  // in order of first appearance, each with its lines
  for (const Shown& shown : effective(state)) {
    const KeyPath table(shown.path.begin(), shown.path.end() - 1);
    auto at = tables.begin();
    while (at != tables.end() && at->first != table) ++at;
    if (at == tables.end()) at = tables.insert(tables.end(), {table, ""});
    const std::string line = quoted_key(shown.path.back()) + " = " + to_toml(shown.value);
    at->second += commented(line, origins ? shown.origin : "") + "\n";
  }
  std::string document;
  for (const auto& [path, lines] : tables) {
    if (!path.empty()) document += fmt::format("\n[{}]\n", dotted(path));
    document += lines;
  }
  return document;
}

std::string defaults_document(const KeyPath& path, const std::vector<pliant_option>& options) {
  std::string document = fmt::format("[{}]\n", dotted(path));
  for (const pliant_option& option : options) {
    const std::string range = range_text(option);
    std::string choices;
    for (uint32_t i = 0; i < option.choice_count; ++i) {
      choices += fmt::format("{}\"{}\"", i == 0 ? "; one of " : ", ", option.choices[i]);
    }
    document +=
        fmt::format("# {} ({}{}{}{})\n", option.doc, type_name(option.type), range.empty() ? "" : ", ", range, choices);
    Value value;
    if (default_of(option, value)) {
      document += fmt::format("{} = {}\n", option.key, to_toml(value));
    } else {
      document += fmt::format("# {} ={}\n", option.key,
                              (option.flags & PLIANT_OPTION_REQUIRED) != 0 ? "   (required)" : "   (unset)");
    }
  }
  return document;
}

}  // namespace pliant::config
