// What a Config holds.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "config/sections.hpp"
#include "config/values/diagnostics.hpp"
#include "config/values/value.hpp"
#include "pliant/config.hpp"
#include "plugin/plugin.hpp"
#include "plugin/search.hpp"

namespace pliant::config {

/// The plugin that one section names.
struct Selection {
  const plugin::Kind* kind = nullptr;
  std::string use;
  ValueOrigin use_origin;                        ///< layer kDefault when nothing names it
  std::filesystem::path file;                    ///< absolute; empty when it was not looked for
  std::shared_ptr<const plugin::Plugin> plugin;  ///< nullptr when the section was not needed
  CheckedTable table;                            ///< its options, when plugin is set
};

/// What a config was opened with.
struct Opening {
  std::string text;
  std::filesystem::path name;
  ConfigNeeds needs;
  ConfigOverrides overrides;
};

}  // namespace pliant::config

namespace pliant::detail {

struct ConfigState {
  std::filesystem::path file;  ///< absolute
  config::Opening opening;
  config::CoreOptions core;
  config::Value root;  ///< file and overrides, before defaults
  std::map<std::string, config::CheckedTable, std::less<>> core_tables;
  std::map<std::string, config::Selection, std::less<>> selections;
  std::vector<config::Selection> lr_schedule;  ///< the links of [lr] before use, when opened with the need "lr"
  std::vector<config::Selection> lr_then;      ///< and after it
  std::vector<plugin::SearchDir> search;       ///< in the order in which they are searched
  std::shared_ptr<const config::Diagnostics> diagnostics;  ///< what was found, and how to show a position
  std::set<std::string, std::less<>> faulty;               ///< sections with errors: only config::examine gives such
};

}  // namespace pliant::detail
