// Measure: what lengths were measured of, as the files of an analysis say it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.hpp"

namespace pliant::data {

inline constexpr size_t kLongestIdentity = size_t{64} << 10;

struct Measure {
  int64_t count = 0;     ///< sequences
  std::string identity;  ///< the embedder's words, at most kLongestIdentity
};

/// kFailedPrecondition (kInput) names `file` and what differs.
Result<> check_measured_as(const std::filesystem::path& file, const Measure& found, const Measure& asked);

}  // namespace pliant::data
