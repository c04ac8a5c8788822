// Opening a config: file, overrides, sections, plugins; every finding at once.
#include "config/open.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/environment.hpp"
#include "config/app_places.hpp"
#include "config/lr_groups.hpp"
#include "config/section_names.hpp"
#include "config/selector.hpp"
#include "config/values/overrides.hpp"
#include "config/values/parse.hpp"
#include "config/values/source.hpp"
#include "plugin/plugin.hpp"

namespace pliant::config {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kConfigVersion = 1;
constexpr size_t kLongestLabel = 100;

std::string cut(std::string text) {
  if (text.size() > kLongestLabel) text = text.substr(0, kLongestLabel) + "...";
  return text;
}

std::vector<Assignment> assignments_of(const ConfigOverrides& overrides) {
  std::vector<Assignment> all;
  for (const std::string& set : overrides.sets) all.push_back({set, Layer::kSet, cut("--set " + set)});
  for (const FlagOverride& flag : overrides.flags) all.push_back({flag.set, Layer::kFlag, cut(flag.flag)});
  return all;
}

void apply_core_environment(Environment& environment, Value& root) {
  environment.apply({"config_version"}, root);
  for (const std::string& section : core_sections()) {
    for (const std::string& key : keys_of(core_options(section))) environment.apply({section, key}, root);
  }
  for (const plugin::Kind& kind : plugin::kinds()) {
    environment.apply({std::string(kind.section), "use"}, root);
    environment.apply({std::string(kind.section), "path"}, root);
  }
  environment.apply_below({"lr", std::string(kLrGroups)}, root);
  environment.apply_app(root);
}

void check_version(const Value& root, bool empty, Diagnostics& diagnostics) {
  const Value* version = root.find("config_version");
  if (version == nullptr) {
    const ValueOrigin start = empty ? ValueOrigin{} : ValueOrigin{Layer::kFile, 1, 1, 1, ""};
    diagnostics.error(start, empty ? "the file is empty" : "config_version is missing",
                      {"write config_version = 1 on the first line"});
  } else if (version->type != Value::Type::kInt) {
    diagnostics.error(version->origin, fmt::format("config_version must be the integer 1, not {}", describe(*version)));
  } else if (version->integer > kConfigVersion) {
    diagnostics.error(version->origin,
                      fmt::format("config_version {} is newer than this pliant, which reads version {}",
                                  version->integer, kConfigVersion));
  } else if (version->integer != kConfigVersion) {
    diagnostics.error(version->origin,
                      fmt::format("config_version must be {}, not {}", kConfigVersion, version->integer));
  }
}

/// The section as a table, or nullptr when it is not there or no table.
const Value* section_of(const Value& root, std::string_view section) {
  const Value* found = root.find(section);
  return found == nullptr || found->type != Value::Type::kTable ? nullptr : found;
}

void read_core_section(const std::string& section, detail::ConfigState& state, Diagnostics& diagnostics) {
  const Value* table = section_of(state.root, section);
  const std::vector<pliant_option>& options = core_options(section);
  if (table != nullptr && plugin::kind_of(section) == nullptr) {
    const std::vector<std::string> known = keys_of(options);
    for (const Member& member : table->members) {
      if (std::find(known.begin(), known.end(), member.key) == known.end()) {
        report_unknown_key(member, {section}, known, diagnostics);
      }
    }
  }
  CheckedTable checked =
      check_options(options, table, {section}, table == nullptr ? ValueOrigin{} : table->origin, diagnostics);
  state.core_tables.emplace(section, std::move(checked));
}

bool valid_job_name(const std::string& name) {
  return !name.empty() && name.size() <= 100 && name.front() != '.' && name.front() != '-' &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-'; });
}

std::string default_job_name(const fs::path& file) {
  std::string name = file.filename() == "pliant.toml" ? file.parent_path().filename().string() : file.stem().string();
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_' && c != '-') c = '-';
  }
  name = name.substr(0, 100);
  return valid_job_name(name) ? name : "job";
}

/// Makes the path in `row` absolute, from the directory of whoever wrote it.
void make_absolute(Effective* row, const fs::path& file_dir) {
  if (row == nullptr || row->value.text.empty()) return;
  row->value.text = absolute_from(row->value, file_dir).string();
}

/// Refuses costs from a file beside costs from somewhere else.
void check_costs(const CheckedTable& balancer, Diagnostics& diagnostics) {
  const Value& costs = balancer.find("costs")->value;
  const Value& row_costs = balancer.find("row_costs")->value;
  if (costs.text.empty() && row_costs.text.empty()) return;
  if (!costs.text.empty() && !row_costs.text.empty()) {
    diagnostics.error(row_costs.origin, "balancer.costs and balancer.row_costs both say what a row costs",
                      {"remove one of them"});
  }
  if (balancer.find("fit")->value.boolean) {
    diagnostics.error(balancer.find("fit")->value.origin,
                      fmt::format("balancer.fit = true has nothing to fit where balancer.{} gives the costs",
                                  costs.text.empty() ? "row_costs" : "costs"),
                      {"remove one of them"});
  }
}

/// Paths and names that are not what was written, but what they stand for.
void complete_core_tables(detail::ConfigState& state, Diagnostics& diagnostics) {
  const fs::path file_dir = state.file.parent_path();
  CheckedTable& data = state.core_tables.at("data");
  for (const char* path : {"text", "lengths", "loss_tokens"}) make_absolute(data.find(path), file_dir);
  CheckedTable& run = state.core_tables.at("run");
  Effective* log_dir = run.find("log_dir");
  log_dir->value.text = absolute_here(log_dir->value.text).string();
  make_absolute(run.find("working_dir"), file_dir);
  Effective* name = run.find("name");
  if (name->value.text.empty()) {
    name->value.text = default_job_name(state.file);
  } else if (!valid_job_name(name->value.text)) {
    diagnostics.error(
        name->value.origin,
        fmt::format("run.name must be made of letters, digits, '.', '_' and '-', not {}", describe(name->value)));
  }
  CheckedTable& balancer = state.core_tables.at("balancer");
  const Value& per_square = balancer.find("cost_per_square")->value;
  if (balancer.find("cost_per_token")->value.integer == 0 && per_square.integer == 0) {
    const Value& per_token = balancer.find("cost_per_token")->value;
    diagnostics.error(
        per_token.origin,
        "balancer.cost_per_token and balancer.cost_per_square are both 0, so every row would cost nothing",
        {"give at least one of them a value above 0"});
  }
  for (const char* path : {"costs", "row_costs"}) make_absolute(balancer.find(path), file_dir);
  check_costs(balancer, diagnostics);
  for (auto& [section, table] : state.core_tables) {
    apply_core_options(section, table.values.view(), state.core);
  }
  state.core.data.text = data.find("text")->value.text;
  state.core.data.lengths = data.find("lengths")->value.text;
  state.core.data.loss_tokens = data.find("loss_tokens")->value.text;
  state.core.balancer.costs = balancer.find("costs")->value.text;
  state.core.balancer.row_costs = balancer.find("row_costs")->value.text;
  state.core.run.log_dir = log_dir->value.text;
  state.core.run.working_dir = run.find("working_dir")->value.text;
  state.core.run.name = name->value.text;
}

std::vector<plugin::SearchDir> config_dirs(detail::ConfigState& state, Diagnostics& diagnostics) {
  std::vector<plugin::SearchDir> dirs;
  Effective* row = state.core_tables.at("plugins").find("dirs");
  for (Value& item : row->value.items) {
    if (item.text.empty()) {
      diagnostics.error(item.origin, "plugins.dirs has an empty element",
                        {"remove it, or write \".\" for the directory of this file"});
      continue;
    }
    const fs::path dir = absolute_from(item, state.file.parent_path());
    item.text = dir.string();
    dirs.push_back({dir, "[plugins] dirs"});
  }
  if (elevated()) dirs.clear();
  return dirs;
}

/// Appends what is not there yet: the first mention of a directory decides its place.
void append(std::vector<plugin::SearchDir>& to, std::vector<plugin::SearchDir> more) {
  for (plugin::SearchDir& dir : more) {
    const bool there = std::any_of(to.begin(), to.end(), [&](const auto& old) { return old.path == dir.path; });
    if (!there) to.push_back(std::move(dir));
  }
}

Result<std::vector<plugin::SearchDir>> flag_dirs(const ConfigOverrides& overrides) {
  std::vector<plugin::SearchDir> dirs;
  for (const fs::path& dir : overrides.plugin_dirs) {
    if (dir.empty()) {
      return failed(Status::kInvalidArgument, "--plugin-dir is empty: name a directory, such as ./plugins",
                    Origin::kInput);
    }
    dirs.push_back({absolute_here(dir), "--plugin-dir"});
  }
  if (elevated()) dirs.clear();
  return dirs;
}

void find_search_dirs(detail::ConfigState& state, const ConfigOverrides& overrides, Diagnostics& diagnostics) {
  if (auto dirs = flag_dirs(overrides)) {
    append(state.search, std::move(*dirs));
  } else {
    diagnostics.error({Layer::kFlag, 0, 0, 0, "--plugin-dir"}, dirs.error().message());
  }
  append(state.search, config_dirs(state, diagnostics));
  if (overrides.read_environment) {
    if (auto dirs = plugin::environment_dirs()) {
      append(state.search, std::move(*dirs));
    } else {
      diagnostics.error({Layer::kEnvironment, 0, 0, 0, "environment PLIANT_PLUGIN_PATH"}, dirs.error().message());
    }
  }
  append(state.search, plugin::installed_dirs());
}

/// RangeNote of core's own options.
std::string core_range(const KeyPath& path) {
  const std::vector<std::string>& sections = core_sections();
  if (path.size() != 2 || std::find(sections.begin(), sections.end(), path[0]) == sections.end()) return {};
  for (const pliant_option& option : core_options(path[0])) {
    if (path[1] != option.key) continue;
    const std::string range = range_text(option);
    return range.empty() ? std::string() : fmt::format("{} must be {}", dotted(path), range);
  }
  return {};
}

/// Reads `text` into a state, which is whole where nothing is wrong.
Examined read_config(std::string text, const fs::path& name, const ConfigNeeds& needs, const ConfigOverrides& overrides,
                     bool every_section, std::string_view app_places) {
  auto state = std::make_shared<detail::ConfigState>();
  auto diagnostics = std::make_shared<Diagnostics>(name.string(), text);
  state->file = absolute_here(name);
  std::optional<Value> root = parse_document(text, *diagnostics, core_range);
  if (!root) return {nullptr, diagnostics->to_error()};
  state->root = std::move(*root);

  const bool empty = state->root.members.empty();
  Environment environment(overrides.read_environment);
  apply_core_environment(environment, state->root);
  apply_assignments(assignments_of(overrides), state->root, *diagnostics);
  if (!app_places.empty()) place_app(app_places, state->root);
  check_version(state->root, empty, *diagnostics);
  check_section_names(state->root, *diagnostics);
  const auto mark_faulty = [&](std::string_view section, size_t errors_before, size_t understood = 0) {
    if (diagnostics->error_count() > errors_before + understood) state->faulty.emplace(section);
  };
  for (const std::string& section : core_sections()) {
    const size_t before = diagnostics->error_count();
    read_core_section(section, *state, *diagnostics);
    if (section == "lr") state->core.lr.groups = read_lr_groups(state->root, *diagnostics);
    mark_faulty(section, before);
  }
  complete_core_tables(*state, *diagnostics);
  find_search_dirs(*state, overrides, *diagnostics);

  Selector selector(*state, environment, *diagnostics);
  for (const plugin::Kind& kind : plugin::kinds()) {
    const size_t before = diagnostics->error_count();
    const size_t understood = selector.select(kind, needs, every_section);
    mark_faulty(kind.section, before, understood);
  }
  environment.report_unknown(*diagnostics);
  state->opening = {std::move(text), name, needs, overrides};
  for (const auto& [section, selection] : state->selections) {
    if (selection.plugin != nullptr) state->opening.needs.insert(section);
  }
  Examined made;
  if (diagnostics->failed()) made.error = diagnostics->to_error();
  state->diagnostics = std::move(diagnostics);
  made.state = std::move(state);
  return made;
}

}  // namespace

fs::path absolute_here(const fs::path& path) {
  std::error_code failure;
  const fs::path made = fs::absolute(path, failure);
  return (failure ? path : made).lexically_normal();
}

fs::path absolute_from(const Value& value, const fs::path& file_dir) {
  if (value.origin.layer > Layer::kFile) return absolute_here(value.text);
  return (file_dir / value.text).lexically_normal();
}

Result<std::vector<plugin::SearchDir>> search_dirs(const ConfigOverrides& overrides) {
  std::vector<plugin::SearchDir> all;
  auto named = flag_dirs(overrides);
  if (!named) return named;
  append(all, std::move(*named));
  if (overrides.read_environment) {
    auto dirs = plugin::environment_dirs();
    if (!dirs) return failed(std::move(dirs));
    append(all, std::move(*dirs));
  }
  append(all, plugin::installed_dirs());
  return all;
}

Result<StatePtr> open_state(const fs::path& file, const ConfigNeeds& needs, const ConfigOverrides& overrides,
                            bool every_section, std::string_view app_places) {
  Result<std::string> text = read_text(file);
  if (!text) return failed(std::move(text));
  return open_text(std::move(*text), file, needs, overrides, every_section, app_places);
}

Result<StatePtr> open_text(std::string text, const fs::path& name, const ConfigNeeds& needs,
                           const ConfigOverrides& overrides, bool every_section, std::string_view app_places) {
  for (const std::string& need : needs) {
    if (plugin::kind_of(need) == nullptr)
      return failed(Status::kInvalidArgument, fmt::format("[{}] is not a section of any plugin kind", need),
                    Origin::kInput);
  }
  Examined made = read_config(std::move(text), name, needs, overrides, every_section, app_places);
  if (made.error) return tl::unexpected<Error>(std::move(*made.error));
  return std::move(made.state);
}

Examined examine(const fs::path& file, const ConfigOverrides& overrides) {
  Result<std::string> text = read_text(file);
  if (!text) return {nullptr, text.error()};
  return read_config(std::move(*text), file, {}, overrides, true, {});
}

std::vector<std::string> warnings(const detail::ConfigState& state) {
  return state.diagnostics->warnings();
}

}  // namespace pliant::config
