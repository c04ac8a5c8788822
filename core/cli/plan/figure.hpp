// A line figure as SVG: efficiency against cluster size, one line for each policy.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace pliant::cli {

struct Series {
  std::string name;                       ///< "exact"
  std::string remark;                     ///< "mean 98.7 %, 2000 rows"
  std::function<double(int64_t)> height;  ///< 0 to 1 at a cluster size
};

/// Sizes `first`..`last`, first >= 1. At most kColumns * kSamples heights of each series are asked for: where sizes are
/// more than columns, a band from the least to the greatest height of a column, and a line of their mean; else steps,
/// as there is nothing between two sizes.
std::string efficiency_figure(const std::vector<Series>& series, int64_t first, int64_t last, const std::string& title);

}  // namespace pliant::cli
