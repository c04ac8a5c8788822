// Comparing what was measured with what is asked for.
#include "data/analysis/measure.hpp"

#include <fmt/format.h>

namespace pliant::data {

Result<> check_measured_as(const std::filesystem::path& file, const Measure& found, const Measure& asked) {
  const auto differs = [&](const std::string& how) {
    return failed(Status::kFailedPrecondition,
                  fmt::format("{} {}; name another file, or remove it to measure again", file.string(), how),
                  Origin::kInput);
  };
  if (found.identity != asked.identity) {
    return differs(fmt::format("was measured as \"{}\", not as \"{}\"", found.identity, asked.identity));
  }
  if (found.count != asked.count) {
    return differs(fmt::format("has {} sequences, the data set has {}", found.count, asked.count));
  }
  return {};
}

}  // namespace pliant::data
