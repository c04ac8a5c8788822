// The course of a run: loss, metrics, learning rate and world size over one step axis.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "base/printable.hpp"
#include "output.hpp"
#include "pliant/error.hpp"
#include "plot.hpp"
#include "report/views.hpp"
#include "svg.hpp"

namespace pliant::cli {

namespace {

constexpr double kReportWidth = 720;
constexpr double kReportLeft = 92;
constexpr double kReportRight = 24;
constexpr double kLegendTop = 46;
constexpr double kLegendRow = 18;
constexpr double kPanelGap = 26;
constexpr double kLossHeight = 170;
constexpr double kMetricHeight = 90;
constexpr double kRateHeight = 90;
constexpr double kWorldHeight = 90;
constexpr double kAxisRoom = 46;  // below the last panel
constexpr double kCharacterWidth = 6.3;
constexpr int64_t kMostRules = 60;      // changes that have a line through all panels
constexpr size_t kMostMetrics = 12;     // that have a panel
constexpr size_t kMostCharacters = 60;  // of a metric's name

constexpr const char* kLossColor = kFigureColors[0];
constexpr const char* kRateColor = kFigureColors[2];
constexpr const char* kMetricColor = kFigureColors[5];
constexpr const char* kEvaluationColor = kFigureColors[3];
constexpr const char* kWorldColor = "#444";
constexpr const char* kSkippedColor = kFigureColors[4];
constexpr const char* kNotFiniteColor = kFigureColors[1];
constexpr double kPale = 0.35;

/// How a change of the group is drawn.
struct Change {
  GroupCause cause;
  PlotMark mark;
  const char* color;
  const char* name;  ///< in the legend
};
constexpr std::array<Change, 6> kChanges{{{GroupCause::kLoss, PlotMark::kDown, kFigureColors[1], "worker lost"},
                                          {GroupCause::kLeave, PlotMark::kOpenDown, kFigureColors[1], "worker left"},
                                          {GroupCause::kJoin, PlotMark::kUp, kFigureColors[2], "worker joined"},
                                          {GroupCause::kResume, PlotMark::kDisc, kFigureColors[0], "resumed"},
                                          {GroupCause::kFault, PlotMark::kDiamond, kFigureColors[3], "fault"},
                                          {GroupCause::kUnknown, PlotMark::kDisc, "#777", "new group"}}};

const Change* change_of(const RunReport& report, size_t group) {
  const GroupCause cause = report.groups[group].cause;
  if (group == 0 || cause == GroupCause::kStart) return nullptr;
  const auto* const found =
      std::find_if(kChanges.begin(), kChanges.end(), [cause](const Change& one) { return one.cause == cause; });
  return found == kChanges.end() ? nullptr : found;
}

/// Every step that was committed, also those that were given up.
template <class Visit>
void for_each_step(const RunReport& report, Visit visit) {
  for (const auto& run : report.discarded) {
    for (const StepReport& one : run) visit(one);
  }
  for (const StepReport& one : report.steps) visit(one);
}

PlotPoints points_of(const std::vector<StepReport>& steps, double StepReport::*value) {
  PlotPoints points;
  points.reserve(steps.size());
  for (const StepReport& one : steps) points.emplace_back(static_cast<double>(one.step), one.*value);
  return points;
}

PlotPoints worlds_of(const std::vector<StepReport>& steps) {
  PlotPoints points;
  points.reserve(steps.size());
  for (const StepReport& one : steps) {
    points.emplace_back(static_cast<double>(one.step), static_cast<double>(one.world_size));
  }
  return points;
}

/// `with_short`: also of short batches, the last of an epoch. Beside whole ones they are marks: a line would fall to
/// them and rise again.
PlotPoints rates_of(const std::vector<StepReport>& steps, bool with_short) {
  PlotPoints points;
  for (const StepReport& one : steps) {
    if (with_short || !one.short_batch) points.emplace_back(static_cast<double>(one.step), one.learning_rate);
  }
  return points;
}

/// Steps that lack it are left out: the line goes on to the next that has it.
PlotPoints metric_of(const std::vector<StepReport>& steps, const std::string& name) {
  PlotPoints points;
  for (const StepReport& one : steps) {
    const auto found = one.metrics.find(name);
    if (found != one.metrics.end()) points.emplace_back(static_cast<double>(one.step), found->second);
  }
  return points;
}

/// By the number of steps that the evaluated state had seen.
PlotPoints evaluations_of(const std::vector<Evaluation>& evaluations, const std::string& name) {
  PlotPoints points;
  for (const Evaluation& one : evaluations) {
    const auto found = one.values.find(name);
    if (found != one.values.end()) points.emplace_back(static_cast<double>(one.step), found->second);
  }
  return points;
}

/// Of all metrics of steps and all evaluations.
std::set<std::string> metric_names(const RunReport& report) {
  std::set<std::string> names;
  const auto add = [&names](const std::map<std::string, double>& values) {
    for (const auto& [name, value] : values) names.insert(name);
  };
  for_each_step(report, [&add](const StepReport& one) { add(one.metrics); });
  for (const Evaluation& one : report.evaluations) add(one.values);
  return names;
}

std::string shortened(const std::string& name) {
  if (name.size() <= kMostCharacters) return name;
  size_t end = 0;
  for (size_t at = 0; at < kMostCharacters - 3; at += std::max<size_t>(character_size(name, at), 1)) end = at;
  return name.substr(0, end) + "...";
}

struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  void add(double value) {
    if (!std::isfinite(value)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  [[nodiscard]] bool is_empty() const { return least > most; }
};

/// Items in rows, each a sample and its words.
class Legend {
 public:
  void line(const LineStyle& style, const std::string& text) {
    const double x = place(28, text);
    svg_ += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{2:.1f}\" y2=\"{1}\" {3}/>", x, y_ - 4, x + 22,
                        style.attributes());
    write(x + 28, text);
  }
  void mark(PlotMark mark, const char* color, const std::string& text) {
    const double x = place(16, text);
    svg_ += draw_mark(mark, x + 6, y_ - 4, color);
    write(x + 16, text);
  }
  /// Of its last row; of the title where there is none.
  [[nodiscard]] double bottom() const { return svg_.empty() ? y_ - kLegendRow : y_; }
  [[nodiscard]] const std::string& draw() const { return svg_; }

 private:
  /// Where the item begins.
  double place(double sample, const std::string& text) {
    const double width = sample + kCharacterWidth * static_cast<double>(text.size()) + 18;
    if (x_ + width > kReportWidth - kReportRight + 18 && x_ > kReportLeft) {
      x_ = kReportLeft;
      y_ += kLegendRow;
    }
    return std::exchange(x_, x_ + width);
  }
  void write(double x, const std::string& text) {
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{}\" font-size=\"11\">{}</text>\n", x, y_, svg_escaped(text));
  }
  double x_ = kReportLeft;
  double y_ = kLegendTop;
  std::string svg_;
};

std::string with_count(const char* name, int64_t count) {
  return count == 1 ? std::string(name) : fmt::format("{} ({})", name, grouped(count));
}

Legend legend_of(const RunReport& report) {
  Legend legend;
  for (const Change& one : kChanges) {
    int64_t count = 0;
    for (size_t i = 0; i < report.groups.size(); ++i) {
      const Change* const change = change_of(report, i);
      count += change != nullptr && change->cause == one.cause ? 1 : 0;
    }
    if (count > 0) legend.mark(one.mark, one.color, with_count(one.name, count));
  }
  if (report.steps_skipped() > 0)
    legend.mark(PlotMark::kCross, kSkippedColor, with_count("step without update", report.steps_skipped()));
  const bool not_finite = std::any_of(report.steps.begin(), report.steps.end(),
                                      [](const StepReport& one) { return !one.skipped && !std::isfinite(one.loss); });
  if (not_finite || report.not_finite_step) legend.mark(PlotMark::kCross, kNotFiniteColor, "not finite");
  if (report.steps_discarded() > 0)
    legend.line({kLossColor, 1.6, "", kPale},
                fmt::format("discarded, computed again ({})", grouped(report.steps_discarded())));
  return legend;
}

/// One figure in the making: panels from top to bottom.
class CoursePanels {
 public:
  CoursePanels(const RunReport& report, double top) : report_(report), top_(top) {
    double end = 1;
    for_each_step(report, [&end](const StepReport& one) { end = std::max(end, static_cast<double>(one.step + 1)); });
    if (report.not_finite_step) end = std::max(end, static_cast<double>(*report.not_finite_step + 1));
    steps_ = {0, end, "step", true, [](double value) { return grouped(std::llround(value)); }};
  }

  void add_losses() {
    Range range;
    for_each_step(report_, [&range](const StepReport& one) { range.add(one.loss); });
    PlotPanel panel(next_area(kLossHeight), "", steps_,
                    range.is_empty() ? PlotAxis{0, 1, "loss"} : value_axis(range.least, range.most, "loss"), false);
    add_rules(panel);
    for (const auto& run : report_.discarded) {
      panel.line(points_of(run, &StepReport::loss), {kLossColor, 1.4, "", kPale});
    }
    panel.line(points_of(report_.steps, &StepReport::loss), {kLossColor, 1.4});
    for (const StepReport& one : report_.steps) {
      const auto at = static_cast<double>(one.step);
      if (one.skipped) {
        panel.mark(PlotMark::kCross, at, std::isfinite(one.loss) ? one.loss : NAN, kSkippedColor);
      } else if (!std::isfinite(one.loss)) {
        panel.mark(PlotMark::kCross, at, NAN, kNotFiniteColor);
      }
    }
    if (report_.not_finite_step) {
      panel.mark(PlotMark::kCross, static_cast<double>(*report_.not_finite_step), NAN, kNotFiniteColor);
    }
    svg_ += panel.draw();
  }

  /// A panel for each name.
  void add_metrics() {
    const std::set<std::string> names = metric_names(report_);
    size_t left = kMostMetrics;
    for (const std::string& name : names) {
      if (--left == 0 && names.size() > kMostMetrics) {
        return add_metric(name, fmt::format("{} more: --json has them", names.size() - kMostMetrics));
      }
      add_metric(name, "");
    }
  }

  void add_rates() {
    Range whole;
    Range all;
    for_each_step(report_, [&](const StepReport& one) {
      all.add(one.learning_rate);
      if (!one.short_batch) whole.add(one.learning_rate);
    });
    const bool only_short = whole.is_empty();  // the data are less than a batch
    const Range& range = only_short ? all : whole;
    const PlotAxis rates =
        range.is_empty() ? PlotAxis{0, 1, "learning rate"} : value_axis(range.least, range.most, "learning rate");
    PlotPanel panel(next_area(kRateHeight), "", steps_, rates, false);
    add_rules(panel);
    for (const auto& run : report_.discarded) panel.line(rates_of(run, only_short), {kRateColor, 1.4, "", kPale});
    panel.line(rates_of(report_.steps, only_short), {kRateColor, 1.4});
    bool has_short = false;
    for (const StepReport& one : report_.steps) {
      if (only_short || !one.short_batch) continue;
      has_short = true;
      panel.mark(one.learning_rate < rates.from ? PlotMark::kOpenDown : PlotMark::kOpenUp,
                 static_cast<double>(one.step), one.learning_rate, kRateColor);
    }
    if (has_short) panel.remark("triangles: short batches, the last of an epoch");
    svg_ += panel.draw();
  }

  void add_worlds() {
    int64_t most = 1;
    for_each_step(report_, [&most](const StepReport& one) { most = std::max(most, one.world_size); });
    for (const GroupReport& one : report_.groups) most = std::max(most, one.world_size);
    PlotPanel panel(next_area(kWorldHeight), "", steps_, count_axis(most, "ranks"));
    add_rules(panel);
    const bool many = static_cast<int64_t>(report_.groups.size()) > kMostRules;
    if (many) add_changes(panel, 0.55);
    for (const auto& run : report_.discarded) {
      panel.steps(worlds_of(run), static_cast<double>(run.back().step + 1), {kWorldColor, 1.6, "", kPale});
    }
    if (!report_.steps.empty()) {
      panel.steps(worlds_of(report_.steps), static_cast<double>(report_.steps.size()), {kWorldColor, 1.6});
    }
    if (!many) add_changes(panel, 1);
    svg_ += panel.draw();
  }

  [[nodiscard]] const std::string& draw() const { return svg_; }
  [[nodiscard]] double height() const { return top_ - kPanelGap + kAxisRoom; }

 private:
  void add_metric(const std::string& name, const std::string& remark) {
    const PlotPoints values = metric_of(report_.steps, name);
    const PlotPoints results = evaluations_of(report_.evaluations, name);
    std::vector<PlotPoints> given_up;
    for (const auto& run : report_.discarded) given_up.push_back(metric_of(run, name));
    Range range;
    const auto add = [&range](const PlotPoints& points) {
      for (const auto& [step, value] : points) range.add(value);
    };
    add(values);
    add(results);
    std::for_each(given_up.begin(), given_up.end(), add);
    PlotPanel panel(next_area(kMetricHeight), shortened(name), steps_,
                    range.is_empty() ? PlotAxis{} : value_axis(range.least, range.most, ""), false);
    add_rules(panel);
    for (const PlotPoints& points : given_up) panel.line(points, {kMetricColor, 1.4, "", kPale});
    panel.line(values, {kMetricColor, 1.4});
    panel.line(results, {kEvaluationColor, 1.2});
    for (const auto& [step, value] : values) {
      if (!std::isfinite(value)) panel.mark(PlotMark::kCross, step, NAN, kNotFiniteColor);
    }
    for (const auto& [step, value] : results) {
      const bool is_finite = std::isfinite(value);
      panel.mark(is_finite ? PlotMark::kDisc : PlotMark::kCross, step, is_finite ? value : NAN,
                 is_finite ? kEvaluationColor : kNotFiniteColor, 0.7);
    }
    if (!results.empty()) panel.remark("discs: evaluations");
    if (!remark.empty()) panel.remark(remark);
    svg_ += panel.draw();
  }
  PlotArea next_area(double height) {
    const PlotArea area{kReportLeft, kReportWidth - kReportRight, top_, height};
    top_ += height + kPanelGap;
    return area;
  }
  void add_changes(PlotPanel& panel, double scale) const {
    for (size_t i = 0; i < report_.groups.size(); ++i) {
      const Change* const change = change_of(report_, i);
      if (change == nullptr) continue;
      panel.mark(change->mark, static_cast<double>(report_.groups[i].step),
                 static_cast<double>(report_.groups[i].world_size), change->color, scale);
    }
  }
  void add_rules(PlotPanel& panel) const {
    if (static_cast<int64_t>(report_.groups.size()) > kMostRules) return;
    for (size_t i = 0; i < report_.groups.size(); ++i) {
      if (change_of(report_, i) == nullptr) continue;
      panel.rule(static_cast<double>(report_.groups[i].step), {"#999", 0.8, "2 3"});
    }
  }

  const RunReport& report_;
  double top_;
  PlotAxis steps_;
  std::string svg_;
};

}  // namespace

std::string report_figure(const RunReport& report) {
  if (report.steps.empty() && report.discarded.empty()) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("--plot: {} has no committed step to draw", report.directory.string()));
  }
  const Legend legend = legend_of(report);
  CoursePanels course(report, legend.bottom() + 28);
  course.add_losses();
  course.add_metrics();
  course.add_rates();
  course.add_worlds();
  const std::string name = report.directory.parent_path().filename().string();
  const std::string title = fmt::format("{}{}{}: {}", name, name.empty() ? "" : ", run ", report.run_id,
                                        counted(static_cast<int64_t>(report.steps.size()), "step"));
  return svg_document(kReportWidth, course.height(), kReportLeft, title, legend.draw() + course.draw());
}

}  // namespace pliant::cli
