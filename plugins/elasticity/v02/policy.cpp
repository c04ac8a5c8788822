// Policy v0.2: v0.1 over whole nodes with model parallelism, and a batch of its own for sizes outside that list, by
// DeepSpeed's elasticity rule 0.2, its oddities included: a fallback ignores min_gpus and max_gpus and may answer a
// batch of 0; the micro-batch divides the share of a device, not of a rank, and where devices outnumber the rows any
// micro-batch divides that.
#include <algorithm>
#include <cmath>
#include <optional>

#include "../common/decimal_text.hpp"
#include "../common/deepspeed.hpp"
#include "../common/numbers.hpp"

namespace pliant::elasticity {
namespace {

int64_t fitting(std::optional<int64_t> value, const char* option, const char* what = "") {
  if (!value) throw sdk::Failure(PLIANT_OUT_OF_RANGE, std::string(option) + what + " does not fit 63 bits", option);
  return *value;
}

/// Ascending numbers of nodes.
void to_ranks(std::vector<int64_t>& nodes, int64_t ranks_per_node) {
  if (nodes.empty() || ranks_per_node == 1) return;
  fitting(checked_product(nodes.back(), ranks_per_node), "a world size");
  for (int64_t& count : nodes) count *= ranks_per_node;
}

struct Answer {
  int64_t batch = 0;
  std::vector<int64_t> sizes;  ///< ranks
  int64_t micro_batch = 0;     ///< 0: no micro-batch divides the share of a device
};

struct PolicyV02 : DeepSpeedOptions {
  static void options(sdk::Options<PolicyV02>& table) {
    add_deepspeed_options(table);
    table
        .add("model_parallel_size", static_cast<int64_t PolicyV02::*>(&DeepSpeedOptions::model_parallel_size),
             "Devices per data-parallel rank; must divide num_gpus_per_node.")
        .at_least(1)
        .unit("devices");
    table
        .add("num_gpus_per_node", static_cast<int64_t PolicyV02::*>(&DeepSpeedOptions::num_gpus_per_node),
             "Devices per node; the job grows and shrinks by whole nodes.")
        .at_least(1)
        .unit("devices");
    add_strict_option(table,
                      "Fix the faults of the rule: a world size counts data-parallel ranks everywhere, the micro-batch "
                      "divides the share of a rank, only whole nodes between min_gpus and max_gpus count, the batch is "
                      "the same at every world size, other sizes are refused, WORLD_SIZE is not read, and the batch "
                      "keeps growing above 720720 times a micro-batch.");
  }

  void start(const sdk::Host& host) {
    check_limits(*this);
    host_ = host;
  }

  [[nodiscard]] sdk::Plan plan(const sdk::PlanRequest& request) const {
    check_world_size(request.world_size);
    if (strict) return strict_plan(request.world_size);
    const int64_t devices = request.world_size > 0 ? request.world_size : devices_of(request);
    const Answer answer = solve(devices);
    sdk::Plan made;
    made.global_batch = answer.batch;
    made.micro_batch = answer.micro_batch;
    made.granule = granule(micro_batch_sizes, answer.batch);
    made.model_parallel_size = model_parallel_size;
    made.devices_per_node = num_gpus_per_node;
    made.min_resize_interval_s = seconds_of(min_time);
    made.world_sizes = as_ranges(answer.sizes);
    if (request.world_size > 0) {
      made.micro_batch = micro_batch_at(*this, request.world_size, answer.batch, answer.sizes);
    }
    if (answer.batch == 0) {
      host_.warning("no micro-batch fits max_train_batch_size " + std::to_string(max_train_batch_size) + " at " +
                    std::to_string(devices) + " devices; rule 0.2 then returns a global batch of 0");
    } else if (made.micro_batch > answer.batch) {
      host_.warning("a global batch of " + std::to_string(answer.batch) + " has fewer rows than the " +
                    std::to_string(devices) + " devices of its ranks; rule 0.2 then returns a micro-batch of " +
                    std::to_string(made.micro_batch) + ", more than the global batch");
    }
    return made;
  }

 private:
  /// Devices that exist now, by the environment.
  static int64_t devices_of(const sdk::PlanRequest& request) {
    const DecimalText text = parse_decimal(request.world_size_text);
    if (text.value && *text.value > 0) return *text.value;
    const std::string wanted = "v0.2 plans for the devices that exist: give a world size, or set WORLD_SIZE, which is ";
    const std::string given = "'" + std::string(request.world_size_text.substr(0, 40)) + "'";
    sdk::require(request.has_world_size_text, wanted + "unset");
    sdk::require(text.valid, wanted + given + "; digits only");
    sdk::require(!text.value, "v0.2 plans for the devices that exist, but WORLD_SIZE says that there are none");
    throw sdk::Failure(PLIANT_OUT_OF_RANGE, wanted + given + " and does not fit 63 bits");
  }

  void check_nodes() const {
    if (num_gpus_per_node % model_parallel_size == 0) return;
    throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                       "model_parallel_size " + std::to_string(model_parallel_size) +
                           " does not divide num_gpus_per_node " + std::to_string(num_gpus_per_node),
                       "model_parallel_size num_gpus_per_node");
  }

  /// v0.1 over whole nodes between the limits, in ranks.
  [[nodiscard]] sdk::Plan strict_plan(int64_t world_size) const {
    check_nodes();
    const int64_t ranks_per_node = num_gpus_per_node / model_parallel_size;
    const int64_t low = min_gpus / num_gpus_per_node + (min_gpus % num_gpus_per_node == 0 ? 0 : 1);
    Found found = best_batch({.micro_batches = micro_batch_sizes,
                              .cap = max_train_batch_size / ranks_per_node,
                              .low = low,
                              .high = max_gpus / num_gpus_per_node,
                              .prefer_larger = prefer_larger_batch,
                              .lcm_may_exceed_cap = lcm_may_exceed_max,
                              .strict = true});
    require_sizes(found, *this);
    to_ranks(found.sizes, ranks_per_node);
    sdk::Plan made;
    made.global_batch = fitting(checked_product(found.batch, ranks_per_node), "the global batch");
    made.granule = granule(micro_batch_sizes, made.global_batch);
    made.model_parallel_size = model_parallel_size;
    made.devices_per_node = num_gpus_per_node;
    made.min_resize_interval_s = seconds_of(min_time);
    made.world_sizes = as_ranges(found.sizes);
    if (world_size > 0) made.micro_batch = micro_batch_at(*this, world_size, made.global_batch, found.sizes);
    return made;
  }

  [[nodiscard]] Answer solve(int64_t devices) const {
    check_nodes();
    const int64_t ranks_per_node = num_gpus_per_node / model_parallel_size;
    Found nodes = over_nodes(ranks_per_node);
    const int64_t ranks = devices / model_parallel_size;
    const bool whole = ranks % ranks_per_node == 0 &&
                       std::binary_search(nodes.sizes.begin(), nodes.sizes.end(), ranks / ranks_per_node);
    if (!whole) {
      Answer answer = fallback(devices, ranks_per_node);
      host_.warning("rule 0.2 cannot place " + std::to_string(devices) + " devices in its plan of " +
                    std::to_string(checked_product(nodes.batch, ranks_per_node).value_or(INT64_MAX)) +
                    " rows; it returns " + std::to_string(answer.batch) +
                    " rows for this size alone, ignoring min_gpus and max_gpus; strict = true refuses");
      return answer;
    }
    Answer answer;
    answer.batch = fitting(checked_product(nodes.batch, ranks_per_node), "the global batch");
    answer.sizes = std::move(nodes.sizes);
    to_ranks(answer.sizes, ranks_per_node);
    answer.micro_batch = pick([&](int64_t micro) { return answer.batch / devices % micro == 0; });
    return answer;
  }

  /// v0.1 with nodes for devices. A bound that rounds down to 0 nodes counts as not given.
  [[nodiscard]] Found over_nodes(int64_t ranks_per_node) const {
    const int64_t cap =
        fitting(rounded_quotient(max_train_batch_size, ranks_per_node), "max_train_batch_size", " per node");
    const int64_t low = fitting(rounded_quotient(min_gpus, num_gpus_per_node), "min_gpus");
    const int64_t high = fitting(rounded_quotient(max_gpus, num_gpus_per_node), "max_gpus");
    const int64_t smallest = *std::min_element(micro_batch_sizes.begin(), micro_batch_sizes.end());
    warn_of_limits(high);
    Found found = best_batch({.micro_batches = micro_batch_sizes,
                              .cap = cap,
                              .low = low > 0 ? low : 1,
                              .high = high > 0 ? high : cap / smallest,
                              .prefer_larger = prefer_larger_batch,
                              .lcm_may_exceed_cap = lcm_may_exceed_max});
    if (found.undecided) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE,
                         "no number of nodes from " + std::to_string(min_gpus) + " to " + std::to_string(max_gpus) +
                             " devices can divide any batch up to " + std::to_string(max_train_batch_size) +
                             " rows; widen min_gpus and max_gpus",
                         "min_gpus max_gpus");
    }
    if (found.table_ended)
      host_.warning(table_end_warning(checked_product(found.batch, ranks_per_node).value_or(INT64_MAX)));
    return found;
  }

  void warn_of_limits(int64_t high) const {
    const auto node = [this] { return std::to_string(num_gpus_per_node) + " devices"; };
    if (high == 0) {
      host_.warning("max_gpus " + std::to_string(max_gpus) + " is less than a node of " + node() +
                    "; rule 0.2 treats that as no limit; strict = true refuses");
    }
    if (min_gpus > 1 && min_gpus % num_gpus_per_node != 0) {
      host_.warning("min_gpus " + std::to_string(min_gpus) + " is not a whole number of nodes of " + node() +
                    "; rule 0.2 rounds it down; strict = true rounds it up");
    }
    if (model_parallel_size > 1) {
      host_.warning(
          "with model_parallel_size above 1 rule 0.2 mixes up devices and ranks: its world sizes count ranks, the "
          "requested one counts devices, and the micro-batch divides the share of a device; strict = true counts "
          "ranks");
    }
  }

  /// The largest (or smallest) multiple of micro * ranks at or below the cap over all micro-batches. Ranks may be a
  /// fraction when devices fill no whole node; hence doubles, rounded where rule 0.2 rounds.
  [[nodiscard]] Answer fallback(int64_t devices, int64_t ranks_per_node) const {
    const double ranks = true_quotient(devices, num_gpus_per_node) * static_cast<double>(ranks_per_node);
    std::optional<double> batch;
    for (const int64_t micro : micro_batch_sizes) {
      const double step = static_cast<double>(micro) * ranks;
      const double multiple = std::floor(static_cast<double>(max_train_batch_size) / step) * step;
      if (!batch || (prefer_larger_batch ? multiple > *batch : multiple < *batch)) batch = multiple;
    }
    const double share = floor_quotient(*batch, static_cast<double>(devices));
    Answer answer;
    answer.batch = fitting(truncated(*batch), "the global batch");
    answer.sizes = {fitting(truncated(ranks), "the world size")};
    answer.micro_batch = pick([&](int64_t micro) { return std::fmod(share, static_cast<double>(micro)) == 0; });
    return answer;
  }

  /// Of the micro-batches that divide a device's share: the largest, or the first in the list. 0 when none does.
  template <class Divides>
  [[nodiscard]] int64_t pick(const Divides& divides) const {
    int64_t picked = 0;
    for (const int64_t micro : micro_batch_sizes) {
      if (divides(micro) && (picked == 0 || (prefer_larger_batch && micro > picked))) picked = micro;
    }
    return picked;
  }

  sdk::Host host_;
};

}  // namespace
}  // namespace pliant::elasticity

PLIANT_ELASTICITY_POLICY(pliant::elasticity::PolicyV02, "v0.2", "0.1.0",
                         "v0.1 by whole nodes, with model parallelism (DeepSpeed elasticity 0.2)")
