// Metrics: numbers of a program's own about a step, and results of its evaluations, one of each over all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace pliant {

/// How all values that ranks give for one name become one. Sums are exact and rounded once, so that neither the order
/// of the calls nor the number of ranks changes a bit of what is the same at each call.
enum class MetricRule {
  kMean,  ///< sum of value times weight, divided by the sum of the weights
  kSum,
  kMax,  ///< NaN where one is
  kMin,  ///< likewise
};

/// What ranks said of the state after `step` committed steps (Session::evaluated).
struct Evaluation {
  int64_t step = 0;
  int64_t ranks = 0;  ///< that gave values
  /// Ranks that were lost before they went on to the next step: what they would have given is missing.
  int64_t lost = 0;
  std::map<std::string, double> values{};
};

/// The snapshot with the best value of [run] keep_best among those that are there.
struct BestSnapshot {
  std::string file;  ///< relative to the run directory
  int64_t step = 0;  ///< committed steps that it holds
  std::string metric;
  double value = 0;
};

}  // namespace pliant
