// Lists of names on a command line.
#pragma once

#include <string>
#include <vector>

namespace pliant::cli {

/// "v0.1,exact" cut at its commas. Throws (exit 2) for an empty name, with `flag` and `example`.
std::vector<std::string> names_in(const std::string& flag, const std::string& list, const std::string& example);

}  // namespace pliant::cli
