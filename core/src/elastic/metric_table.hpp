// MetricTable: metrics by name, as one rank collects them and as the agent puts those of all ranks together.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "elastic/exact_sum.hpp"
#include "pliant/metric.hpp"

namespace pliant::elastic {

/// One metric of one rank on its way.
struct MetricShare {
  std::string name;
  MetricRule rule = MetricRule::kMean;
  std::vector<double> sum;     ///< parts of the exact sum; of kMax and kMin the one value
  std::vector<double> weight;  ///< parts of the sum of the weights; of kMean alone
  bool operator==(const MetricShare&) const = default;
};

inline constexpr size_t kMostMetrics = 64;
inline constexpr size_t kLongestMetricName = 64;

/// 1 to kLongestMetricName letters, digits and any of ".-_/:".
[[nodiscard]] bool is_metric_name(std::string_view name);

class MetricTable {
 public:
  /// Throws kInvalidArgument for a name that is none or has another rule so far, a weight that is negative or not
  /// finite, and one name too many.
  void add(std::string_view name, double value, double weight, MetricRule rule);
  /// What another table has collected. False where a rank has combined that name by another rule: it has no value then.
  bool take(const MetricShare& share);
  [[nodiscard]] std::vector<MetricShare> shares() const;
  /// Those that have one: a mean of weights that are all 0 has none.
  [[nodiscard]] std::map<std::string, double> values() const;
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  void clear() { entries_.clear(); }

 private:
  struct Entry {
    MetricRule rule = MetricRule::kMean;
    bool disputed = false;
    ExactSum sum;
    ExactSum weight;
    double extreme = 0;
    void take_extreme(double value);
    bool has_extreme = false;
  };
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace pliant::elastic
