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
constexpr int kCurveTicks = 6;
constexpr double kCurveInset = 20;  // rings around the first and the last budget stay within the axes

LineStyle floor_style() {
  return {"#444", 1, "6 3"};
}

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
      : budgets_(std::move(budgets)), most_(end_above(0, most_seconds, kCurveTicks)), top_(top) {
    std::sort(budgets_.begin(), budgets_.end());
    budgets_.erase(std::unique(budgets_.begin(), budgets_.end()), budgets_.end());
  }
  [[nodiscard]] double x(double budget) const {
    const double span = std::log(budgets_.back() / budgets_.front());
    const double part = span > 0 ? std::log(budget / budgets_.front()) / span : 0.5;
    return kCurveLeft + kCurveInset + part * (kCurveWidth - kCurveLeft - kCurveRight - 2 * kCurveInset);
  }
  [[nodiscard]] double y(double seconds) const {
    return kCurveHeight - kCurveBottom - seconds / most_ * (kCurveHeight - kCurveBottom - top_);
  }
  [[nodiscard]] std::string draw() const {
    std::string svg;
    for (const double tick : round_ticks(0, most_, kCurveTicks)) {
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
    svg += fmt::format(
        "<text transform=\"translate(14 {:.1f}) rotate(-90)\" text-anchor=\"middle\">time of a step</text>\n",
        (top_ + kCurveHeight - kCurveBottom) / 2);
    return svg;
  }

 private:
  std::vector<double> budgets_;
  double most_;
  double top_;
};

std::string path_of(const Curve& curve, const CurvePlane& plane) {
  std::string path;
  for (const CurvePoint& point : curve.points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", plane.x(point.budget), plane.y(point.seconds));
  }
  return path;
}

/// `number`: of the curves before it. The first has discs, the others rings around each other, so that all are seen
/// where they are equal.
std::string draw_curve(const Curve& curve, const CurvePlane& plane, size_t number, size_t count) {
  const LineStyle style = curve_style(number, count);
  const std::string path = path_of(curve, plane);
  std::string dots;
  for (const CurvePoint& point : curve.points) {
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\" stroke=\"{}\" stroke-width=\"1.4\"/>",
                        plane.x(point.budget), plane.y(point.seconds), 3 + 2.5 * static_cast<double>(number),
                        number == 0 ? style.color : "none", style.color);
  }
  if (path.empty()) return {};
  return fmt::format("<path d=\"{}\" fill=\"none\" {}/>{}\n", path, style.attributes(), dots);
}

std::string draw_floor(double seconds, const CurvePlane& plane) {
  return fmt::format("<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" {3}/>\n", kCurveLeft, plane.y(seconds),
                     kCurveWidth - kCurveRight, floor_style().attributes());
}

std::string remark_on(const std::vector<Curve>& curves, size_t number, const CurvePlane& plane) {
  if (curves[number].points.empty()) return "fits none of the budgets";
  for (size_t i = 0; i < number; ++i) {
    if (path_of(curves[i], plane) == path_of(curves[number], plane))
      return fmt::format("on the line of {}", curves[i].name);
  }
  return {};
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
    body += draw_curve(curves[i], plane, i, curves.size());
    body += legend_line(kCurveLeft, y, curve_style(i, curves.size()), curves[i].name, remark_on(curves, i, plane));
  }
  body += legend_line(kCurveLeft, y, floor_style(), "", "computation alone");
  return svg_document(kCurveWidth, kCurveHeight, kCurveLeft, "Time of a step, by budget", body);
}

}  // namespace pliant::cli
