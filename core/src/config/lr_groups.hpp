// [lr.groups]: a base rate for each group of parameters that the program asks for by name.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "config/values/diagnostics.hpp"
#include "config/values/value.hpp"

namespace pliant::config {

/// The table's name, which no rule in use may have.
inline constexpr std::string_view kLrGroups = "groups";

/// For those who list the options of [lr].
inline constexpr const char* kLrGroupsHelp =
    "Base rates of groups of parameters, by the names that the program asks for: head = 0.01. (float, above 0)";

/// What `root` has there; what is wrong with it, or with a rule of that name, is reported.
std::map<std::string, double> read_lr_groups(const Value& root, Diagnostics& diagnostics);

}  // namespace pliant::config
