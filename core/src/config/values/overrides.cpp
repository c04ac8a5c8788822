// Assignments typed by the user and variables of the environment, laid over the tree of the file.
#include "config/values/overrides.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/environment.hpp"
#include "base/suggest.hpp"
#include "config/values/parse.hpp"
#include "config/values/source.hpp"
#include "plugin/plugin.hpp"

namespace pliant::config {

namespace {

constexpr std::string_view kPrefix = "PLIANT__";

/// The first `=` outside quotes.
size_t equals_sign(std::string_view text) {
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    if (quote != '\0') {
      if (text[i] == quote) quote = '\0';
    } else if (text[i] == '"' || text[i] == '\'') {
      quote = text[i];
    } else if (text[i] == '=') {
      return i;
    }
  }
  return std::string_view::npos;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

KeyPath lower_path(std::string_view suffix) {
  KeyPath path;
  while (!suffix.empty()) {
    const size_t end = std::min(suffix.find("__"), suffix.size());
    std::string key(suffix.substr(0, end));
    for (char& c : key) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    path.push_back(std::move(key));
    suffix.remove_prefix(std::min(end + 2, suffix.size()));
  }
  return path;
}

bool usable(const KeyPath& path) {
  return path.size() <= static_cast<size_t>(kDeepest) &&
         std::none_of(path.begin(), path.end(), [](const std::string& key) { return key.empty(); });
}

/// The path in `table` whose environment name is `suffix`; empty when there is none.
KeyPath find_by_name(const Value& table, const KeyPath& path, std::string_view suffix) {
  for (const Member& member : table.members) {
    KeyPath here = path;
    here.push_back(member.key);
    if (environment_name(here) == suffix) return here;
    if (member.value.type != Value::Type::kTable) continue;
    if (KeyPath found = find_by_name(member.value, here, suffix); !found.empty()) return found;
  }
  return {};
}

}  // namespace

void apply_assignments(const std::vector<Assignment>& assignments, Value& root, Diagnostics& diagnostics) {
  for (const Assignment& assignment : assignments) {
    const ValueOrigin origin{assignment.layer, 0, 0, 0, assignment.label};
    const size_t split = equals_sign(assignment.text);
    const auto path = split == std::string_view::npos
                          ? std::nullopt
                          : parse_key(trimmed(std::string_view(assignment.text).substr(0, split)));
    if (!path) {
      diagnostics.error(origin, "this does not have the form key=value",
                        {"for example run.workers=2, or elasticity.\"v0.1\".max_gpus=64 for a key with a dot in it"});
      continue;
    }
    if (path->size() > 3 && plugin::kind_of(path->front()) != nullptr) {
      diagnostics.error(origin,
                        fmt::format("{} is nested too deeply: options have the form section.key or section.plugin.key",
                                    dotted(*path)),
                        {"put a plugin name that has a dot in quotes: elasticity.\"v0.1\".max_gpus=64"});
      continue;
    }
    Value value = parse_override(trimmed(std::string_view(assignment.text).substr(split + 1)), origin);
    if (!assign(root, *path, std::move(value))) {
      diagnostics.error(origin, fmt::format("{} is not a table, so {} cannot be set",
                                            dotted({path->begin(), path->end() - 1}), dotted(*path)));
    }
  }
}

std::string environment_name(const KeyPath& path) {
  std::string name;
  for (const std::string& key : path) {
    if (!name.empty()) name += "__";
    for (const char c : key) {
      const bool digit = c >= '0' && c <= '9';
      const bool upper = c >= 'A' && c <= 'Z';
      name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : digit || upper ? c : '_';
    }
  }
  return name;
}

Environment::Environment(bool read) {
  if (!read || elevated()) return;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    const size_t split = line.find('=');
    if (line.compare(0, kPrefix.size(), kPrefix) != 0 || split == std::string_view::npos) continue;
    variables_.push_back({std::string(line.substr(0, split)),
                          std::string(line.substr(kPrefix.size(), split - kPrefix.size())),
                          std::string(line.substr(split + 1)), false});
  }
  std::sort(variables_.begin(), variables_.end(), [](const Variable& a, const Variable& b) { return a.name < b.name; });
}

void Environment::put(Variable& variable, const KeyPath& path, Value& root) {
  variable.claimed = true;
  const Value* old = at(root, path);
  if (old != nullptr && old->origin.layer > Layer::kEnvironment) return;
  const ValueOrigin origin{Layer::kEnvironment, 0, 0, 0, "environment " + variable.name};
  variable.claimed = assign(root, path, parse_override(variable.value, origin));
}

void Environment::apply(const KeyPath& path, Value& root) {
  const std::string name = environment_name(path);
  known_.push_back(name);
  for (Variable& variable : variables_) {
    if (!variable.claimed && variable.suffix == name) put(variable, path, root);
  }
}

void Environment::apply_app(Value& root) {
  for (Variable& variable : variables_) {
    if (variable.claimed || variable.suffix.compare(0, 5, "APP__") != 0) continue;
    const Value* app = root.find("app");
    KeyPath path = app == nullptr ? KeyPath() : find_by_name(*app, {"app"}, variable.suffix);
    if (path.empty()) path = lower_path(variable.suffix);
    if (path.size() > 1 && usable(path)) put(variable, path, root);
  }
}

void Environment::apply_below(const KeyPath& path, Value& root) {
  const std::string prefix = environment_name(path) + "__";
  for (Variable& variable : variables_) {
    if (variable.claimed || variable.suffix.compare(0, prefix.size(), prefix) != 0) continue;
    KeyPath whole = path;
    for (std::string& key : lower_path(std::string_view(variable.suffix).substr(prefix.size())))
      whole.push_back(std::move(key));
    if (whole.size() == path.size() + 1 && usable(whole)) put(variable, whole, root);
  }
}

void Environment::ignore_below(const KeyPath& path) {
  const std::string prefix = environment_name(path) + "__";
  for (Variable& variable : variables_) {
    if (variable.suffix.compare(0, prefix.size(), prefix) == 0) variable.claimed = true;
  }
}

void Environment::report_unknown(Diagnostics& diagnostics) const {
  for (const Variable& variable : variables_) {
    if (variable.claimed) continue;
    std::vector<std::string> notes;
    if (const auto near = nearest(variable.suffix, known_); !near.empty()) {
      notes.push_back(fmt::format("did you mean {}{}?", kPrefix, near.front()));
    } else {
      notes.push_back("PLIANT__SECTION__KEY sets an option, PLIANT__ELASTICITY__V0_1__MAX_GPUS one of plugin \"v0.1\"");
    }
    diagnostics.error({Layer::kEnvironment, 0, 0, 0, "environment " + variable.name}, "this does not name an option",
                      std::move(notes));
  }
}

}  // namespace pliant::config
