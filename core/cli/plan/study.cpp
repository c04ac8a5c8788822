// The numbers behind `pliant plan`.
#include "plan/study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/environment.hpp"
#include "base/inside.hpp"
#include "config/state.hpp"
#include "pliant/error.hpp"
#include "pliant/learning_rate.hpp"

namespace pliant::cli {

namespace {

constexpr int64_t kMostCounted = int64_t{1} << 20;
constexpr int64_t kMostProbed = 1024;

std::optional<std::string> world_size_text() {
  const char* text = environment_variable("WORLD_SIZE");
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

/// The rate for a batch of `rows`, before any schedule, where rows say it: the mean batch gets base_lr under every
/// rule.
std::optional<double> learning_rate_of(const Config& config, int64_t rows) {
  if (!config.has("lr")) return std::nullopt;
  const LrOptions& lr = config.lr();
  if (lr.base_batch == 0) return lr.base_lr;
  if (lr.unit != "rows") return std::nullopt;
  BatchSize size;
  size.rows = rows;
  LearningRate rate(config, size);
  if (rate.wants_job_length()) rate.set_job_length({1, size});  // schedules are not shown, so any length will do
  const Scaling scaling = rate.scaling(0, size);
  const bool scheduled = scaling.scheduled_learning_rate != lr.base_lr;
  return scheduled ? lr.base_lr * scaling.learning_rate_factor : scaling.learning_rate;
}

}  // namespace

Study::Study(const Config& config, int64_t world_size) : config_(config), planner_(config) {
  plan_ = world_size > 0 ? planner_.plan(world_size) : any_plan(planner_);
  if (world_size == 0) {
    const int64_t wanted = config.has("run") ? plan_.largest_valid(config.run().workers) : 0;
    world_size = wanted > 0 ? wanted : last_size();
    plan_ = planner_.plan(world_size);
    if (const auto workers = workers_of_run(config); workers != world_size) not_valid_ = workers;
  }
  shown_ = report(plan_, world_size);
}

std::optional<int64_t> workers_of_run(const Config& config) {
  const config::Effective& workers = *detail::inside(config).core_tables.at("run").find("workers");
  const bool is_of_run = workers.value.origin.layer != config::Layer::kDefault || !config.run().command.empty();
  return is_of_run ? std::optional<int64_t>(config.run().workers) : std::nullopt;
}

std::vector<std::string> Study::warnings() const {
  std::vector<std::string> all = plan_.warnings;
  if (!not_valid_) return all;
  all.push_back(
      fmt::format("run.workers: world size {} is not valid for global batch {}; this is the plan for world size {}",
                  *not_valid_, plan_.global_batch, shown_.world_size));
  return all;
}

Plan any_plan(const Planner& planner) {
  try {
    return planner.plan(0, world_size_text());
  } catch (const Error& error) {
    if (error.status() != Status::kInvalidArgument || world_size_text()) throw;
    std::optional<Error> refused;  // for another reason than that nobody said how many there are
    for (int64_t devices = 1; devices <= kMostProbed; ++devices) {
      try {
        Plan plan = planner.plan(0, std::to_string(devices));
        if (plan.count() > 1) return plan;
      } catch (const Error& there) {
        if (!refused && there.status() != Status::kIncompatibleWorldSize) refused = there;
      }
    }
    throw refused.value_or(error);
  }
}

SizeReport Study::report(const Plan& plan, int64_t world_size) const {
  SizeReport made;
  made.world_size = world_size;
  made.devices = world_size * plan.model_parallel_size;
  if (plan.devices_per_node > 0 && made.devices % plan.devices_per_node == 0) {
    made.nodes = made.devices / plan.devices_per_node;
  }
  made.micro_batch = plan.micro_batch;
  made.largest_share = share_of(plan.global_batch, plan.granule, world_size, 0).count;
  made.accumulation_steps =
      made.largest_share / plan.micro_batch + (made.largest_share % plan.micro_batch != 0 ? 1 : 0);
  made.efficiency = static_cast<double>(plan.global_batch) / static_cast<double>(world_size) /
                    static_cast<double>(made.largest_share);
  made.learning_rate = learning_rate_of(config_, plan.global_batch);
  return made;
}

std::vector<int64_t> Study::sizes_to_list(int64_t most) const {
  std::vector<int64_t> sizes;
  if (plan_.count() <= most) {
    for (const WorldRange& range : plan_.world_sizes) {
      for (int64_t size = range.first; size <= range.last; size += range.step) sizes.push_back(size);
    }
    return sizes;
  }
  sizes = {first_size(), shown_.world_size, last_size()};
  const double ratio = static_cast<double>(last_size()) / static_cast<double>(first_size());
  const double step = std::pow(ratio, 1.0 / static_cast<double>(most - 2));
  for (double size = static_cast<double>(first_size()); size < static_cast<double>(last_size());
       size = std::max(size + 1, size * step)) {
    if (const int64_t valid = plan_.largest_valid(static_cast<int64_t>(size)); valid > 0) sizes.push_back(valid);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::vector<SizeReport> Study::reports(int64_t most) const {
  std::vector<SizeReport> made;
  for (const int64_t size : sizes_to_list(most)) {
    try {
      const Plan there = planner_.plan(size);
      if (there.global_batch == plan_.global_batch) made.push_back(report(there, size));
    } catch (const Error& error) {  // DeepSpeed's rule 0.2 lists sizes that it then has no micro-batch for
      if (error.status() != Status::kIncompatibleWorldSize) throw;
    }
  }
  return made;
}

std::vector<WorldRange> Study::unusable(size_t most) const {
  std::vector<WorldRange> gaps;
  const auto add = [&](int64_t first, int64_t last) {
    if (first <= last && gaps.size() < most) gaps.push_back({first, last});
  };
  int64_t next = first_size();
  for (const WorldRange& range : plan_.world_sizes) {
    add(next, range.first - 1);
    for (int64_t size = range.first; range.step > 1 && size < range.last && gaps.size() < most; size += range.step) {
      add(size + 1, size + range.step - 1);
    }
    next = range.last + 1;
  }
  return gaps;
}

int64_t Study::unusable_count() const {
  return last_size() - first_size() + 1 - plan_.count();
}

double Study::efficiency_of(int64_t ranks) const {
  const int64_t started = plan_.largest_valid(ranks);
  if (started == 0) return 0;
  const int64_t share = share_of(plan_.global_batch, plan_.granule, started, 0).count;
  return static_cast<double>(plan_.global_batch) / (static_cast<double>(ranks) * static_cast<double>(share));
}

double Study::mean_efficiency(int64_t first, int64_t last) const {
  const int64_t stride = (last - first) / kMostCounted * 2 + 1;  // odd: not in step with the divisors of most batches
  double sum = 0;
  int64_t counted = 0;
  for (int64_t at = 0; at <= last - first; at += stride, ++counted) sum += efficiency_of(first + at);
  return sum / static_cast<double>(counted);
}

double Study::mean_efficiency() const {
  return mean_efficiency(first_size(), largest_counted());
}

std::string Study::learning_rate_text() const {
  if (!config_.has("lr")) return {};
  const LrOptions& lr = config_.lr();
  const std::string& rule = config_.use("lr");
  if (lr.base_batch == 0) {
    return rule == "none" ? fmt::format("{}", lr.base_lr)
                          : fmt::format("{} at the mean batch; rule \"{}\" on {}", lr.base_lr, rule, lr.unit);
  }
  if (shown_.learning_rate) {
    return fmt::format("{:.6g}; rule \"{}\", {} at {} {}", *shown_.learning_rate, rule, lr.base_lr, lr.base_batch,
                       lr.unit);
  }
  return fmt::format("by rule \"{}\" from the {} of each batch, {} at {}", rule, lr.unit, lr.base_lr, lr.base_batch);
}

int64_t ranks_of_nodes(const Config& config, int64_t nodes) {
  const Plan any = Study(config, 0).plan();
  const auto refuse = [&](const std::string& why) {
    throw Error(Status::kInvalidArgument, fmt::format("--nodes {}: {}", nodes, why), Origin::kInput);
  };
  if (any.devices_per_node < 1) {
    refuse(fmt::format("policy \"{}\" plans no nodes; give --world-size", config.use("elasticity")));
  }
  if (nodes > INT64_MAX / any.devices_per_node) refuse("the number of devices does not fit 63 bits");
  const int64_t devices = nodes * any.devices_per_node;
  if (devices % any.model_parallel_size != 0) {
    refuse(fmt::format("{} devices cannot be split into ranks of {} devices each", devices, any.model_parallel_size));
  }
  return devices / any.model_parallel_size;
}

}  // namespace pliant::cli
