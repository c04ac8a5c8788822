// Draws the time of a step by budget. Units: SVG user units, 1/96 inch; y grows downwards.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "coordinator/views.hpp"
#include "svg.hpp"
#include "units.hpp"

namespace pliant::cli {

namespace {

constexpr double kCurveWidth = 720;
constexpr double kCurveHeight = 400;
constexpr double kCurveLeft = 72;
constexpr double kCurveRight = 32;
constexpr double kCurveTop = 44;
constexpr double kCurveBottom = 48;
constexpr double kCurveLegend = 18;

struct CurvePoint {
  double budget = 0;
  double seconds = 0;
};
struct Curve {
  std::string name;
  std::vector<CurvePoint> points;  ///< by budget
};

std::vector<Curve> curves_of(const std::vector<ComparedRun>& runs) {
  std::vector<Curve> curves;
  for (const ComparedRun& run : runs) {
    auto at = std::find_if(curves.begin(), curves.end(), [&](const Curve& one) { return one.name == run.coordinator; });
    if (at == curves.end()) at = curves.insert(at, {run.coordinator, {}});
    if (!run.fits() || !run.budget) continue;
    at->points.push_back({static_cast<double>(*run.budget), static_cast<double>(run.step->time.all_ns) * 1e-9});
  }
  for (Curve& one : curves) {
    std::sort(one.points.begin(), one.points.end(),
              [](const CurvePoint& a, const CurvePoint& b) { return a.budget < b.budget; });
  }
  return curves;
}

/// Budgets to the right, by their logarithm; time upwards, from 0.
class CurvePlane {
 public:
  CurvePlane(std::vector<double> budgets, double most_seconds, double top)
      : budgets_(std::move(budgets)), most_(most_seconds), top_(top) {
    std::sort(budgets_.begin(), budgets_.end());
    budgets_.erase(std::unique(budgets_.begin(), budgets_.end()), budgets_.end());
  }
  [[nodiscard]] double x(double budget) const {
    const double span = std::log(budgets_.back() / budgets_.front());
    const double part = span > 0 ? std::log(budget / budgets_.front()) / span : 0.5;
    return kCurveLeft + part * (kCurveWidth - kCurveLeft - kCurveRight);
  }
  [[nodiscard]] double y(double seconds) const {
    return kCurveHeight - kCurveBottom - seconds / most_ * (kCurveHeight - kCurveBottom - top_);
  }
  [[nodiscard]] std::string draw() const {
    std::string svg;
    const double step = round_step(most_, 6);
    for (double tick = 0; tick <= most_ * 1.0001; tick += step) {
      svg += fmt::format(
          "<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"#ddd\"/>"
          "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
          kCurveLeft, y(tick), kCurveWidth - kCurveRight, kCurveLeft - 8, y(tick) + 4,
          tick == 0 ? "0" : text_of_seconds(tick));
    }
    double last = -kCurveWidth;
    for (const double budget : budgets_) {
      if (x(budget) - last < 64) continue;  // the text of the one before would touch it
      last = x(budget);
      svg += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#444\"/>"
          "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
          last, kCurveHeight - kCurveBottom, kCurveHeight - kCurveBottom + 5, kCurveHeight - kCurveBottom + 18,
          text_of_bytes(budget));
    }
    svg += fmt::format("<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"#444\"/>\n", kCurveLeft,
                       kCurveHeight - kCurveBottom, kCurveWidth - kCurveRight);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">budget (log scale)</text>\n",
                       (kCurveLeft + kCurveWidth - kCurveRight) / 2, kCurveHeight - 10);
    return svg;
  }

 private:
  std::vector<double> budgets_;
  double most_;
  double top_;
};

std::string draw_curve(const Curve& curve, const CurvePlane& plane, const char* color) {
  std::string path;
  std::string dots;
  for (const CurvePoint& point : curve.points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", plane.x(point.budget), plane.y(point.seconds));
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>", plane.x(point.budget),
                        plane.y(point.seconds), color);
  }
  if (path.empty()) return {};
  return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>{}\n", path, color, dots);
}

std::string draw_floor(double seconds, const CurvePlane& plane) {
  return fmt::format(
      "<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"#444\" stroke-dasharray=\"6 3\"/>\n",
      kCurveLeft, plane.y(seconds), kCurveWidth - kCurveRight);
}

std::string legend_line(double y, const std::string& line, const std::string& name) {
  return fmt::format(
      "<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" {}/><text x=\"{}\" y=\"{:.1f}\">{}</text>\n", kCurveLeft,
      y, kCurveLeft + 28, y, line, kCurveLeft + 36, y + 4, svg_escaped(name));
}

}  // namespace

std::string comparison_figure(const std::vector<ComparedRun>& runs) {
  const std::vector<Curve> curves = curves_of(runs);
  std::vector<double> budgets;
  double computed = 0;
  double most = 0;
  for (const ComparedRun& run : runs) {
    if (run.budget) budgets.push_back(static_cast<double>(*run.budget));
    if (run.step) computed = std::max(computed, static_cast<double>(run.step->time.compute_ns) * 1e-9);
  }
  for (const Curve& one : curves) {
    for (const CurvePoint& point : one.points) most = std::max(most, point.seconds);
  }
  most = std::max(most, computed);
  if (most <= 0) most = 1e-9;
  const CurvePlane plane(budgets, most, kCurveTop + kCurveLegend * static_cast<double>(curves.size() + 1) + 8);
  std::string body = plane.draw() + draw_floor(computed, plane);
  double y = kCurveTop;
  for (size_t i = 0; i < curves.size(); ++i, y += kCurveLegend) {
    const char* const color = kFigureColors[i % kFigureColors.size()];
    const char* const remark = curves[i].points.empty() ? ": fits none of the budgets" : "";
    body += draw_curve(curves[i], plane, color);
    body += legend_line(y, fmt::format("stroke=\"{}\" stroke-width=\"2.2\"", color), curves[i].name + remark);
  }
  body += legend_line(y, "stroke=\"#444\" stroke-dasharray=\"6 3\"", "computation alone");
  return svg_document(kCurveWidth, kCurveHeight, kCurveLeft, "Time of a step, by budget", body);
}

}  // namespace pliant::cli
