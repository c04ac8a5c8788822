// pliant plan
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "actions.hpp"
#include "output.hpp"
#include "pliant/error.hpp"
#include "pliant/plan.hpp"

namespace pliant::cli {

namespace {

constexpr int64_t kMostListed = 1000;  // world sizes that are listed one by one in JSON
constexpr int64_t kMostRows = 12;      // of them in the table
constexpr int64_t kMostCounted = int64_t{1} << 20;
constexpr size_t kLineWidth = 90;
constexpr int kMostLines = 5;

/// How one world size shares out the batch.
struct SizeReport {
  int64_t world_size = 0;
  int64_t micro_batch = 0;
  int64_t largest_share = 0;       ///< rows of the slowest rank, which is rank 0
  int64_t accumulation_steps = 0;  ///< its micro-batches
  double efficiency = 0;           ///< part of the device time that computes rows, 0 to 1
};

/// `plan` was made at `world_size`.
SizeReport report_of(const Plan& plan, int64_t world_size) {
  SizeReport report;
  report.world_size = world_size;
  report.micro_batch = plan.micro_batch;
  report.largest_share = share_of(plan.global_batch, plan.granule, world_size, 0).count;
  report.accumulation_steps =
      report.largest_share / plan.micro_batch + (report.largest_share % plan.micro_batch != 0 ? 1 : 0);
  report.efficiency = static_cast<double>(plan.global_batch) / static_cast<double>(world_size) /
                      static_cast<double>(report.largest_share);
  return report;
}

/// All valid sizes when they are few, else some, further and further apart, with the first, the last and `shown`.
std::vector<int64_t> sizes_to_list(const Plan& plan, int64_t shown, int64_t most) {
  std::vector<int64_t> sizes;
  if (plan.count() <= most) {
    for (const WorldRange& range : plan.world_sizes) {
      for (int64_t size = range.first; size <= range.last; size += range.step) sizes.push_back(size);
    }
    return sizes;
  }
  const int64_t last = plan.world_sizes.back().last;
  sizes = {plan.world_sizes.front().first, shown, last};
  const double step = std::pow(static_cast<double>(last), 1.0 / static_cast<double>(most - 2));
  for (double size = 1; size < static_cast<double>(last); size = std::max(size + 1, size * step)) {
    if (const int64_t valid = plan.largest_valid(static_cast<int64_t>(size)); valid > 0) sizes.push_back(valid);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::vector<SizeReport> report_sizes(const Config& config, const Plan& plan, int64_t shown, int64_t most) {
  std::vector<SizeReport> reports;
  for (const int64_t size : sizes_to_list(plan, shown, most)) {
    const Plan there = make_plan(config, size);
    if (there.global_batch == plan.global_batch) reports.push_back(report_of(there, size));
  }
  return reports;
}

/// Part of the device time that computes rows, over clusters of every size from the first valid to the last, where
/// those of no valid size leave devices idle. Negative when there are too many to count.
double mean_efficiency(const Plan& plan) {
  const int64_t first = plan.world_sizes.front().first;
  const int64_t last = plan.world_sizes.back().last;
  if (last - first >= kMostCounted) return -1;
  double sum = 0;
  for (int64_t size = first; size <= last; ++size) {
    const int64_t share = share_of(plan.global_batch, plan.granule, plan.largest_valid(size), 0).count;
    sum += static_cast<double>(plan.global_batch) / (static_cast<double>(size) * static_cast<double>(share));
  }
  return sum / static_cast<double>(last - first + 1);
}

std::string as_json(const Plan& plan, int64_t world_size, const Config& config) {
  nlohmann::ordered_json json;
  json["schema"] = "pliant.plan/1";
  json["policy"] = config.use("elasticity");
  json["global_batch"] = plan.global_batch;
  json["world_size"] = world_size;
  const SizeReport here = report_of(plan, world_size);
  json["micro_batch"] = here.micro_batch;
  json["gradient_accumulation_steps"] = here.accumulation_steps;
  json["largest_share"] = here.largest_share;
  json["efficiency"] = here.efficiency;
  const double mean = mean_efficiency(plan);
  json["mean_efficiency"] = mean < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(mean);
  json["granule"] = plan.granule;
  json["model_parallel_size"] = plan.model_parallel_size;
  json["world_size_count"] = plan.count();
  auto ranges = nlohmann::ordered_json::array();
  auto sizes = nlohmann::ordered_json::array();
  for (const WorldRange& range : plan.world_sizes) {
    ranges.push_back({range.first, range.last});
    for (int64_t size = range.first; plan.count() <= kMostListed && size <= range.last; size += range.step)
      sizes.push_back(size);
  }
  json["world_sizes"] = plan.count() <= kMostListed ? sizes : nlohmann::ordered_json(nullptr);
  json["world_size_ranges"] = std::move(ranges);
  auto by_size = nlohmann::ordered_json::array();
  for (const SizeReport& report : report_sizes(config, plan, world_size, kMostListed)) {
    by_size.push_back({{"world_size", report.world_size},
                       {"micro_batch", report.micro_batch},
                       {"gradient_accumulation_steps", report.accumulation_steps},
                       {"largest_share", report.largest_share},
                       {"efficiency", report.efficiency}});
  }
  json["by_world_size"] = std::move(by_size);
  return json.dump() + "\n";
}

/// "1-4, 6, 8" in lines that fit beside a label of `indent` columns.
std::string sizes_text(const Plan& plan, size_t indent) {
  std::string text;
  std::string line;
  int lines = 0;
  for (const WorldRange& range : plan.world_sizes) {
    const std::string one =
        range.first == range.last ? fmt::format("{}", range.first) : fmt::format("{}-{}", range.first, range.last);
    if (!line.empty() && indent + line.size() + one.size() + 2 > kLineWidth) {
      if (++lines == kMostLines) {
        return text + line +
               fmt::format(",\n{}... and more, up to {}", std::string(indent, ' '), plan.world_sizes.back().last);
      }
      text += line + ",\n" + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : ", ") + one;
  }
  return text + line;
}

std::string rows_text(int64_t rows) {
  return fmt::format("{} {}", rows, rows == 1 ? "row" : "rows");
}

std::string as_text(const Plan& plan, int64_t world_size, const Config& config) {
  constexpr size_t kIndent = 22;
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"policy", config.use("elasticity")});
  rows.push_back({"global batch", rows_text(plan.global_batch)});
  const SizeReport here = report_of(plan, world_size);
  rows.push_back({"micro-batch", fmt::format("{} at world size {}, {} a step", rows_text(here.micro_batch), world_size,
                                             here.accumulation_steps)});
  rows.push_back({"granule", rows_text(plan.granule)});
  if (plan.model_parallel_size > 1) {
    rows.push_back({"model parallel size", fmt::format("{} devices behind each rank", plan.model_parallel_size)});
  }
  rows.push_back({"valid world sizes", fmt::format("{}", plan.count())});
  rows.push_back({"", sizes_text(plan, kIndent)});
  if (const double mean = mean_efficiency(plan); mean >= 0) {
    rows.push_back({"mean efficiency", fmt::format("{:.1f} % over clusters of {} to {}", 100 * mean,
                                                   plan.world_sizes.front().first, plan.world_sizes.back().last)});
  }
  for (auto& row : rows) row.front().resize(kIndent - 2, ' ');
  std::vector<std::vector<std::string>> sizes{{"world size", "micro-batch", "a step", "largest share", "efficiency"}};
  for (const SizeReport& report : report_sizes(config, plan, world_size, kMostRows)) {
    sizes.push_back({fmt::format("{:>10}", report.world_size), fmt::format("{:>11}", report.micro_batch),
                     fmt::format("{:>6}", report.accumulation_steps), fmt::format("{:>13}", report.largest_share),
                     fmt::format("{:>8.1f} %", 100 * report.efficiency)});
  }
  return table(rows) + "\n" + table(sizes);
}

/// The plan at `world_size`, or, when that is 0, at a size worth showing, which it is set to: what `[run] workers`
/// starts, else the largest valid one.
Plan plan_to_show(const Config& config, int64_t& world_size) {
  if (world_size > 0) return make_plan(config, world_size);
  if (config.has("run")) {
    try {
      world_size = config.run().workers;
      return make_plan(config, world_size);
    } catch (const Error& error) {
      if (error.status() != Status::kIncompatibleWorldSize) throw;
    }
  }
  const Plan any = make_plan(config);
  const int64_t started = config.has("run") ? any.largest_valid(config.run().workers) : 0;
  world_size = started > 0 ? started : any.world_sizes.back().last;
  return make_plan(config, world_size);
}

}  // namespace

int show_plan(const Invocation& invocation, const std::filesystem::path& file, int64_t world_size) {
  ConfigNeeds needs;
  needs.elasticity = true;
  const Config config = Config::open(file, needs, invocation.overrides);
  const Plan plan = plan_to_show(config, world_size);
  return emit(invocation.json ? as_json(plan, world_size, config) : as_text(plan, world_size, config));
}

}  // namespace pliant::cli
