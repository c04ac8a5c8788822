// Cutting lists of names.
#include "names.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "pliant/error.hpp"

namespace pliant::cli {

std::vector<std::string> names_in(const std::string& flag, const std::string& list, const std::string& example) {
  std::vector<std::string> names;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    names.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  if (std::find(names.begin(), names.end(), "") == names.end()) return names;
  throw Error(Status::kInvalidArgument,
              fmt::format("{} '{}': give names separated by single commas, e.g. {}", flag, list, example),
              Origin::kInput);
}

}  // namespace pliant::cli
