// Plans as tables for people.
#include <fmt/format.h>

#include <algorithm>

#include "output.hpp"
#include "plan/views.hpp"

namespace pliant::cli {

namespace {

constexpr size_t kLineWidth = 98;
constexpr size_t kIndent = 22;
constexpr size_t kMostGaps = 200;

std::string percent(double part) {
  return fmt::format("{:.1f} %", 100 * part);
}

std::string range_text(const WorldRange& range) {
  if (range.first == range.last) return fmt::format("{}", range.first);
  if (range.step == 1) return fmt::format("{}-{}", range.first, range.last);
  return fmt::format("{}-{} by {}", range.first, range.last, range.step);
}

/// "1-4, 6, 8" in at most `most_lines` lines that fit beside the labels.
std::string ranges_text(const std::vector<WorldRange>& ranges, int most_lines, int64_t last) {
  std::string text;
  std::string line;
  int lines = 1;
  for (const WorldRange& range : ranges) {
    const std::string one = range_text(range);
    if (!line.empty() && kIndent + line.size() + one.size() + 2 > kLineWidth) {
      const std::string next = ",\n" + std::string(kIndent, ' ');
      if (++lines > most_lines) return text + line + next + fmt::format("... and more, up to {}", last);
      text += line + next;
      line.clear();
    }
    line += (line.empty() ? "" : ", ") + one;
  }
  return text + line;
}

std::string size_table(const Study& study) {
  const bool many_devices = study.plan().model_parallel_size > 1;
  const std::vector<SizeReport> reports = study.reports(kMostRows);
  const bool rates = std::any_of(reports.begin(), reports.end(), [](const auto& row) { return row.learning_rate; });
  std::vector<std::string> heads;
  if (study.knows_nodes()) heads.emplace_back("nodes");
  if (many_devices) heads.emplace_back("devices");
  for (const char* head : {"world size", "micro-batch", "per step", "largest share", "efficiency"}) {
    heads.emplace_back(head);
  }
  if (rates) heads.emplace_back("learning rate");
  std::vector<std::vector<std::string>> rows{heads};
  for (const SizeReport& report : reports) {
    std::vector<std::string> cells;
    if (study.knows_nodes()) cells.push_back(report.nodes ? std::to_string(*report.nodes) : "-");
    if (many_devices) cells.push_back(std::to_string(report.devices));
    for (const int64_t number :
         {report.world_size, report.micro_batch, report.accumulation_steps, report.largest_share}) {
      cells.push_back(std::to_string(number));
    }
    cells.push_back(percent(report.efficiency));
    if (rates) cells.push_back(report.learning_rate ? fmt::format("{:.6g}", *report.learning_rate) : "-");
    rows.push_back(std::move(cells));
  }
  std::string text = table(rows, 0);
  if (study.plan().count() > kMostRows) {
    text += fmt::format("({} of {} valid sizes; --json has them all)\n", rows.size() - 1, study.plan().count());
  }
  return text;
}

}  // namespace

std::string plan_text(const Study& study) {
  const Plan& plan = study.plan();
  const SizeReport& here = study.shown();
  const int64_t last = study.last_size();
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"policy", study.planner().policy()});
  rows.push_back({"global batch", counted(plan.global_batch, "row")});
  rows.push_back({"micro-batch", fmt::format("{} at world size {}, {} per step", counted(here.micro_batch, "row"),
                                             here.world_size, here.accumulation_steps)});
  rows.push_back({"granule", counted(plan.granule, "row")});
  if (plan.model_parallel_size > 1) {
    rows.push_back({"model parallel size", fmt::format("{} devices per rank", plan.model_parallel_size)});
  }
  if (study.knows_nodes()) rows.push_back({"node", counted(plan.devices_per_node, "device")});
  const int64_t span = last - study.first_size() + 1;
  rows.push_back(
      {"valid world sizes", fmt::format("{} of the {} from {} to {}", plan.count(), span, study.first_size(), last)});
  rows.push_back({"", ranges_text(plan.world_sizes, 4, last)});
  if (study.unusable_count() > 0) {
    rows.push_back({"unusable", ranges_text(study.unusable(kMostGaps), 2, last)});
  }
  rows.push_back(
      {"mean efficiency", fmt::format("{} of the device time, averaged over clusters of {} to {} ranks",
                                      percent(study.mean_efficiency()), study.first_size(), study.largest_counted())});
  if (const std::string rate = study.learning_rate_text(); !rate.empty()) rows.push_back({"learning rate", rate});
  if (plan.min_resize_interval_s > 0) {
    rows.push_back({"min time", fmt::format("{} s between voluntary resizes", plan.min_resize_interval_s)});
  }
  rows.push_back({"elasticity digest", study.planner().digest()});
  for (auto& row : rows) row.front().resize(kIndent - 2, ' ');
  return table(rows) + "\n" + size_table(study);
}

std::string compare_text(const std::vector<Compared>& policies, int64_t world_size) {
  std::vector<std::string> heads{"policy", "global batch", "granule", "valid sizes", "largest", "mean efficiency"};
  const WorldRange sizes = compared_sizes(policies);
  heads.push_back(fmt::format("over {} to {} ranks", sizes.first, sizes.last));
  const std::string at = world_size > 0 ? fmt::format("at {}", world_size) : "";
  if (world_size > 0) {
    for (const char* head : {"micro-batch", "per step", "efficiency"}) heads.push_back(fmt::format("{} {}", head, at));
  }
  std::vector<std::vector<std::string>> rows{heads};
  std::string remarks;
  for (const Compared& one : policies) {
    if (!one.study) {
      std::vector<std::string> dashes(heads.size(), "-");
      dashes.front() = one.policy;
      rows.push_back(std::move(dashes));
      remarks += fmt::format("{}: {}\n", one.policy, one.refusal);
      continue;
    }
    if (!one.remark.empty()) remarks += fmt::format("{}: {}\n", one.policy, one.remark);
    const Study& study = *one.study;
    std::vector<std::string> cells{one.policy,
                                   std::to_string(study.plan().global_batch),
                                   std::to_string(study.plan().granule),
                                   std::to_string(study.plan().count()),
                                   std::to_string(study.last_size()),
                                   percent(study.mean_efficiency()),
                                   percent(study.mean_efficiency(sizes.first, sizes.last))};
    if (world_size > 0) {
      const bool valid = study.shown().world_size == world_size;
      cells.push_back(valid ? std::to_string(study.shown().micro_batch) : "-");
      cells.push_back(valid ? std::to_string(study.shown().accumulation_steps) : "-");
      cells.push_back(percent(study.efficiency_of(world_size)));
    }
    rows.push_back(std::move(cells));
  }
  std::string text = table(rows, 1);
  if (sizes.first > 0) {
    text +=
        "\nMean efficiency: the share of the device time that computes, averaged over the cluster sizes that the "
        "policy chose\nthe batch for, as `pliant plan` shows it; the next column: averaged over the same sizes for all "
        "policies. In a cluster\nwhose size is not valid, the largest valid number of ranks runs and the other devices "
        "idle.\n";
  }
  return text + (remarks.empty() ? "" : "\n" + remarks);
}

}  // namespace pliant::cli
