// Policy exact: one global batch and one micro-batch for good, and every world size from min to max, by uneven shares.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "../common/min_time.hpp"
#include "../common/numbers.hpp"
#include "choice.hpp"
#include "pliant/sdk/elasticity_policy.hpp"

namespace pliant::elasticity {
namespace {

/// Work of a plan, as work() counts it: one or two seconds. Above it the largest batch is taken.
constexpr int64_t kMostWork = int64_t{1} << 27;

struct PolicyExact {
  int64_t max_train_batch_size = 0;
  std::vector<int64_t> micro_batch_sizes;
  int64_t min_gpus = 1;
  int64_t max_gpus = 10000;
  int64_t model_parallel_size = 1;
  int64_t num_gpus_per_node = 1;
  bool whole_nodes = false;
  int64_t granule = 0;
  int64_t min_time = 0;
  std::string cost = "rows";
  std::vector<int64_t> weighted_sizes;
  std::vector<int64_t> weights;

  static void options(sdk::Options<PolicyExact>& table) {
    table
        .add("max_train_batch_size", &PolicyExact::max_train_batch_size,
             "The largest global batch; of the batches at or below it that have room for max_gpus the one is chosen "
             "that "
             "has the highest mean efficiency over clusters from min_gpus to max_gpus, as far as this cap has granules "
             "for them: the best of all up to 524288 granules, above that the best of the 262144 largest.")
        .required()
        .at_least(1)
        .unit("rows");
    table
        .add("micro_batch_sizes", &PolicyExact::micro_batch_sizes,
             "Numbers of rows that a rank can compute at once. One of them is chosen for all world sizes.")
        .required()
        .at_least(1)
        .elements(1, 0)
        .unit("rows");
    table.add("min_gpus", &PolicyExact::min_gpus, "The smallest number of devices for the job.")
        .at_least(1)
        .unit("devices");
    table
        .add("max_gpus", &PolicyExact::max_gpus,
             "The largest number of devices for the job. A batch cannot use more ranks than it has granules; if that "
             "limits the world sizes and this option is set, a warning says so.")
        .at_least(1)
        .unit("devices");
    table
        .add("model_parallel_size", &PolicyExact::model_parallel_size,
             "Devices per data-parallel rank; a world size counts ranks.")
        .at_least(1)
        .unit("devices");
    table.add("num_gpus_per_node", &PolicyExact::num_gpus_per_node, "Devices per node; used only with whole_nodes.")
        .at_least(1)
        .unit("devices");
    table.add("whole_nodes", &PolicyExact::whole_nodes,
              "Allow only world sizes that fill whole nodes; model_parallel_size must divide num_gpus_per_node.");
    add_min_time_option(table, &PolicyExact::min_time);
    table
        .add("granule", &PolicyExact::granule,
             "Number of rows that are never split between ranks; must divide every micro-batch size. 0 = their "
             "greatest common divisor. Smaller granules waste less.")
        .at_least(0)
        .unit("rows");
    table
        .add("cost", &PolicyExact::cost,
             "What the time of a rank is proportional to: rows = its rows, so the largest micro-batch that the batch "
             "has rows for is used; calls = its micro-batches, full or not, as with fixed shapes. With calls every "
             "micro-batch size is searched; "
             "above some 500 sizes, or some 16 million sizes times world sizes, the largest batch and micro-batch are "
             "used.")
        .choices({"rows", "calls"});
    table
        .add("weighted_sizes", &PolicyExact::weighted_sizes,
             "World sizes that the job usually has; empty = all valid sizes have the same weight.")
        .at_least(1)
        .unit("ranks");
    table
        .add("weights", &PolicyExact::weights,
             "Share of time that the job has each of weighted_sizes; empty = equal shares.")
        .range(1, 1000000);
  }

  void start(const sdk::Host& host) {
    sdk::require(
        min_gpus <= max_gpus,
        "min_gpus is " + std::to_string(min_gpus) + ", more than max_gpus, which is " + std::to_string(max_gpus),
        "min_gpus max_gpus");
    sdk::require(!whole_nodes || num_gpus_per_node % model_parallel_size == 0,
                 "model_parallel_size " + std::to_string(model_parallel_size) + " does not divide num_gpus_per_node " +
                     std::to_string(num_gpus_per_node),
                 "model_parallel_size num_gpus_per_node");
    const int64_t common = greatest_common_divisor(micro_batch_sizes);
    sdk::require(granule == 0 || common % granule == 0,
                 "granule " + std::to_string(granule) + " does not divide every micro-batch size; " +
                     std::to_string(common) + " and its divisors do",
                 "granule micro_batch_sizes");
    if (granule == 0) granule = common;
    sdk::require(weights.empty() || weights.size() == weighted_sizes.size(),
                 "weights has " + std::to_string(weights.size()) + " elements and weighted_sizes " +
                     std::to_string(weighted_sizes.size()) + "; give one for each, or none",
                 "weights weighted_sizes");
    sdk::require(weighted_sizes.size() <= static_cast<size_t>(kMostSizes),
                 "weighted_sizes has " + std::to_string(weighted_sizes.size()) + " elements; at most " +
                     std::to_string(kMostSizes) + " are allowed",
                 "weighted_sizes");
    choose();
    if (wanted_high_ > high_ && max_gpus != PolicyExact{}.max_gpus) host.warning(idle_devices_warning());
  }

  [[nodiscard]] sdk::Plan plan(const sdk::PlanRequest& request) const {
    const int64_t size = request.world_size;
    sdk::require(size >= 0, "world size " + std::to_string(size) + " is negative; give at least 1, or 0 for none");
    sdk::Plan made;
    made.global_batch = batch_;
    made.micro_batch = micro_batch_;
    made.granule = granule;
    made.model_parallel_size = model_parallel_size;
    made.devices_per_node = num_gpus_per_node;
    made.min_resize_interval_s = seconds_of(min_time);
    made.world_sizes = {{low_, high_, step_}};
    if (counted_high_ > high_) made.largest_counted = counted_high_;
    if (size > 0 && (size < low_ || size > high_ || size % step_ != 0)) throw sdk::IncompatibleWorldSize(refusal(size));
    return made;
  }

 private:
  void choose() {
    const int64_t most = max_train_batch_size / granule;
    const int64_t smallest = *std::min_element(micro_batch_sizes.begin(), micro_batch_sizes.end());
    if (smallest > max_train_batch_size) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                         "every micro-batch size is above max_train_batch_size " + std::to_string(max_train_batch_size),
                         "max_train_batch_size micro_batch_sizes");
    }
    find_sizes(most);
    const std::vector<int64_t> usable = usable_micro_batches();
    // With cost "rows" all micro-batches cost the same: one search over the batches that have room for the smallest.
    const std::vector<int64_t> micros = cost == "rows" ? std::vector<int64_t>{usable.front()} : usable;
    std::vector<Period> sizes = counted_sizes();
    if (work(micros, sizes) > kMostWork) sizes.clear();
    int64_t fewest = std::max(low_, wanted_high_ <= most ? wanted_high_ : smallest / granule);
    std::optional<Choice> best;
    for (const int64_t micro : micros) {
      fewest = std::max(fewest, micro / granule);
      const std::vector<Period> periods = periods_of(sizes, cost == "calls" ? micro / granule : 1);
      const Choice found = periods.empty() ? Choice{most, 0} : most_efficient(fewest, most, periods);
      if (best && clearly_less(best->loss, found.loss, periods)) continue;
      best = found;
      micro_batch_ = micro;
    }
    batch_ = best->granules * granule;
    if (cost == "rows") micro_batch_ = *std::prev(std::upper_bound(usable.begin(), usable.end(), batch_));
    counted_high_ = high_;
    high_ = std::min(high_, best->granules / step_ * step_);
  }

  /// World sizes by min_gpus, max_gpus and the granules of the largest batch.
  void find_sizes(int64_t most_granules) {
    step_ = whole_nodes ? num_gpus_per_node / model_parallel_size : 1;
    const int64_t group = whole_nodes ? num_gpus_per_node : model_parallel_size;  // devices that come and go together
    const std::optional<int64_t> low = checked_product((min_gpus - 1) / group + 1, step_);
    if (!low)
      throw sdk::Failure(PLIANT_OUT_OF_RANGE, "min_gpus, rounded up to whole nodes, does not fit 63 bits", "min_gpus");
    low_ = *low;
    wanted_high_ = max_gpus / group * step_;
    high_ = std::min(wanted_high_, most_granules / step_ * step_);
    if (wanted_high_ < low_) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                         "no multiple of " + std::to_string(group) + " devices lies between " +
                             std::to_string(min_gpus) + " and " + std::to_string(max_gpus),
                         "min_gpus max_gpus");
    }
    if (high_ < low_) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                         std::to_string(low_) + " ranks cannot share " + std::to_string(most_granules) +
                             " granules of " + std::to_string(granule) +
                             " rows; raise max_train_batch_size or lower min_gpus",
                         "max_train_batch_size min_gpus");
    }
  }

  /// Those that the largest batch has rows for, ascending, each once; at least one.
  [[nodiscard]] std::vector<int64_t> usable_micro_batches() const {
    std::vector<int64_t> usable;
    for (const int64_t micro : micro_batch_sizes) {
      if (micro <= max_train_batch_size) usable.push_back(micro);
    }
    std::sort(usable.begin(), usable.end());
    usable.erase(std::unique(usable.begin(), usable.end()), usable.end());
    return usable;
  }

  /// World sizes that decide, each once, with the sum of its weights. Empty where they are too many to count: then the
  /// largest batch is taken.
  [[nodiscard]] std::vector<Period> counted_sizes() const {
    std::vector<Period> counted;
    if (weighted_sizes.empty()) {
      if ((high_ - low_) / step_ >= kMostSizes) return {};
      counted.resize(static_cast<size_t>((high_ - low_) / step_ + 1));
      for (size_t i = 0; i < counted.size(); ++i) counted[i].length = low_ + static_cast<int64_t>(i) * step_;
      return counted;
    }
    for (size_t i = 0; i < weighted_sizes.size(); ++i) {
      const int64_t size = weighted_sizes[i];
      sdk::require(size >= low_ && size <= high_ && size % step_ == 0,
                   "weighted_sizes has " + std::to_string(size) + ": " + refusal(size), "weighted_sizes");
      counted.push_back({size, weights.empty() ? 1 : weights[i]});
    }
    std::sort(counted.begin(), counted.end(), [](const Period& a, const Period& b) { return a.length < b.length; });
    size_t kept = 0;
    for (size_t i = 1; i < counted.size(); ++i) {
      if (counted[i].length == counted[kept].length) {
        counted[kept].weight += counted[i].weight;
      } else {
        counted[++kept] = counted[i];
      }
    }
    counted.resize(kept + 1);
    return counted;
  }

  /// How long a search would take, in batches that one pass of the sieve looks at; a size takes as long as eight.
  static int64_t work(const std::vector<int64_t>& micros, const std::vector<Period>& sizes) {
    return std::ssize(micros) * (8 * std::ssize(sizes) + kMostBatches);
  }

  static std::vector<Period> periods_of(std::vector<Period> sizes, int64_t granules_at_once) {
    for (Period& size : sizes) {
      const std::optional<int64_t> product = checked_product(size.length, granules_at_once);
      if (!product) throw sdk::Failure(PLIANT_OUT_OF_RANGE, "micro-batch times world size does not fit 63 bits");
      size.length = *product;
    }
    return sizes;
  }

  [[nodiscard]] std::string idle_devices_warning() const {
    return "max_gpus " + std::to_string(max_gpus) + " gives room for " + std::to_string(wanted_high_) +
           " ranks, but a global batch of " + std::to_string(batch_) + " rows has only " +
           std::to_string(batch_ / granule) + " granules of " + std::to_string(granule) +
           " rows; the largest world size is " + std::to_string(high_);
  }

  [[nodiscard]] std::string refusal(int64_t size) const {
    const std::string steps = step_ == 1 ? "" : " in steps of " + std::to_string(step_);
    return "world size " + std::to_string(size) + " is not valid; valid are " + std::to_string(low_) + " to " +
           std::to_string(high_) + steps;
  }

  int64_t batch_ = 0;
  int64_t micro_batch_ = 0;
  int64_t low_ = 1;  ///< ranks, as the next three
  int64_t high_ = 1;
  int64_t wanted_high_ = 1;   ///< by max_gpus alone
  int64_t counted_high_ = 1;  ///< by max_gpus and the granules of the largest batch: those that the choice counts
  int64_t step_ = 1;
};

}  // namespace
}  // namespace pliant::elasticity

PLIANT_ELASTICITY_POLICY(pliant::elasticity::PolicyExact, "exact", "0.1.0",
                         "One global batch for every world size, with uneven shares")
