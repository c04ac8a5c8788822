// A run's course as a table for people.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "output.hpp"
#include "report/views.hpp"

namespace pliant::cli {

namespace {

constexpr size_t kMostGroups = 40;  // lines
constexpr size_t kMeanOf = 10;      // steps of the means at both ends

/// Of the finite losses among steps [first, end); NaN where there is none.
double mean_loss(const RunReport& report, size_t first, size_t end) {
  double sum = 0;
  int64_t count = 0;
  for (size_t i = first; i < end; ++i) {
    if (!std::isfinite(report.steps[i].loss)) continue;
    sum += report.steps[i].loss;
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : std::nan("");
}

std::string steps_text(const RunReport& report) {
  std::string text = counted(static_cast<int64_t>(report.steps.size()), "step") + " committed";
  if (const int64_t given_up = report.steps_discarded(); given_up > 0)
    text += fmt::format(", {} discarded by restarts and computed again", grouped(given_up));
  return text;
}

std::string loss_text(const RunReport& report) {
  const size_t count = report.steps.size();
  const int64_t bad = losses_not_finite(report);
  if (bad == static_cast<int64_t>(count)) return fmt::format("not finite at {}", counted(bad, "step"));
  std::string text =
      count <= kMeanOf ? fmt::format("{:.4f}, the mean of {}", mean_loss(report, 0, count),
                                     counted(static_cast<int64_t>(count), "step"))
                       : fmt::format("{:.4f} over the first {} steps, {:.4f} over the last",
                                     mean_loss(report, 0, kMeanOf), kMeanOf, mean_loss(report, count - kMeanOf, count));
  if (bad > 0) text += fmt::format("; not finite at {}", counted(bad, "step"));
  return text;
}

/// By name, ascending: the first value and the last, of metrics and of evaluations.
std::vector<std::vector<std::string>> metric_rows(const RunReport& report) {
  struct Course {
    double first = 0;
    double last = 0;
    int64_t count = 0;
    int64_t last_step = 0;
  };
  const auto take = [](std::map<std::string, Course>& courses, const auto& values, int64_t step) {
    for (const auto& [name, value] : values) {
      Course& course = courses[name];
      if (course.count++ == 0) course.first = value;
      course.last = value;
      course.last_step = step;
    }
  };
  std::map<std::string, Course> metrics;
  std::map<std::string, Course> results;
  for (const StepReport& one : report.steps) take(metrics, one.metrics, one.step);
  for (const Evaluation& one : report.evaluations) take(results, one.values, one.step);
  std::vector<std::vector<std::string>> rows;
  const auto say = [](const Course& course) {
    return course.count == 1 ? fmt::format("{:.6g}", course.last)
                             : fmt::format("{:.6g}, at first {:.6g}", course.last, course.first);
  };
  for (const auto& [name, course] : metrics)
    rows.push_back({name, fmt::format("{}; at {}", say(course), counted(course.count, "step"))});
  for (const auto& [name, course] : results) {
    rows.push_back({name, fmt::format("{}; evaluated {}, last after step {}", say(course),
                                      counted(course.count, "time"), course.last_step)});
  }
  return rows;
}

std::string range_text(double least, double most) {
  return least == most ? fmt::format("{:.6g}", least) : fmt::format("{:.6g} to {:.6g}", least, most);
}

std::string rate_text(const RunReport& report) {
  const auto less = [](const StepReport& a, const StepReport& b) { return a.learning_rate < b.learning_rate; };
  const auto [least, most] = std::minmax_element(report.steps.begin(), report.steps.end(), less);
  return range_text(least->learning_rate, most->learning_rate);
}

std::string world_text(const RunReport& report) {
  int64_t least = report.groups.back().world_size;
  int64_t most = least;
  for (const GroupReport& one : report.groups) {
    least = std::min(least, one.world_size);
    most = std::max(most, one.world_size);
  }
  const std::string last = counted(report.groups.back().world_size, "rank");
  return least == most ? last : fmt::format("{} in the last group, {} to {} over the run", last, least, most);
}

std::string groups_text(const RunReport& report) {
  std::string text = grouped(static_cast<int64_t>(report.groups.size()));
  std::string causes;
  for (const auto& [cause, words] : {std::pair{GroupCause::kLoss, "after a loss"},
                                     {GroupCause::kLeave, "as workers left"},
                                     {GroupCause::kJoin, "as workers joined"},
                                     {GroupCause::kFault, "after a fault"},
                                     {GroupCause::kResume, "by a resume"}}) {
    const int64_t count = count_of(report, cause);
    if (count > 0) causes += fmt::format("{}{} {}", causes.empty() ? ": " : ", ", grouped(count), words);
  }
  return text + causes;
}

/// Numbers on the right, words on the left.
std::string group_lines(const RunReport& report) {
  std::string text = "\n    step  generation  ranks  cause   discarded  why\n";
  const size_t shown = std::min(kMostGroups, report.groups.size());
  for (size_t i = 0; i < shown; ++i) {
    const GroupReport& one = report.groups[i];
    text += fmt::format("{:>8}  {:>10}  {:>5}  {:<7} {:>9}  {}\n", grouped(one.step), one.generation, one.world_size,
                        word_of(one.cause), one.steps_discarded > 0 ? grouped(one.steps_discarded) : "", one.reason);
  }
  if (report.groups.size() > shown)
    text += fmt::format("and {} more; --json has all\n", grouped(static_cast<int64_t>(report.groups.size() - shown)));
  return text;
}

}  // namespace

const char* word_of(GroupCause cause) {
  switch (cause) {
    case GroupCause::kUnknown:
      return "unknown";
    case GroupCause::kStart:
      return "start";
    case GroupCause::kResume:
      return "resume";
    case GroupCause::kLoss:
      return "loss";
    case GroupCause::kLeave:
      return "leave";
    case GroupCause::kJoin:
      return "join";
    case GroupCause::kFault:
      return "fault";
  }
  return "unknown";
}

int64_t count_of(const RunReport& report, GroupCause cause) {
  return std::count_if(report.groups.begin(), report.groups.end(),
                       [cause](const GroupReport& one) { return one.cause == cause; });
}

int64_t losses_not_finite(const RunReport& report) {
  return std::count_if(report.steps.begin(), report.steps.end(),
                       [](const StepReport& one) { return !std::isfinite(one.loss); });
}

std::string report_text(const RunReport& report) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&rows](const char* name, std::string value) { rows.push_back({name, std::move(value)}); };
  add("run", report.directory.string());
  add("steps", steps_text(report));
  if (!report.steps.empty()) {
    add("loss", loss_text(report));
    add("learning rate", rate_text(report));
    for (auto& row : metric_rows(report)) rows.push_back(std::move(row));
  }
  if (!report.groups.empty()) {
    add("world size", world_text(report));
    add("groups", groups_text(report));
  }
  if (const int64_t skipped = report.steps_skipped(); skipped > 0)
    add("steps without update", fmt::format("{}, not finite", grouped(skipped)));
  if (report.ended_early)
    add("ended", fmt::format("early, after {}: {}", counted(*report.ended_early, "step"), report.reason_to_end));
  if (report.not_finite_step)
    add("ended", fmt::format("at step {}: {}", *report.not_finite_step, report.not_finite_reason));
  return report.groups.empty() ? table(rows) : table(rows) + group_lines(report);
}

}  // namespace pliant::cli
