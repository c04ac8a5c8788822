// Draws panels. Units: SVG user units, 1/96 inch; y grows downwards.
#include "plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "output.hpp"
#include "svg.hpp"

namespace pliant::cli {

namespace {

constexpr int kTicksAcross = 8;
constexpr int kTicksUp = 5;
constexpr double kMarkRadius = 4.5;

/// As many digits as tell ticks apart, 3 or more.
std::function<std::string(double)> number_label(const std::vector<double>& ticks) {
  double most = 0;
  for (const double tick : ticks) most = std::max(most, std::abs(tick));
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : most;
  const int needed = most > 0 && step > 0 ? static_cast<int>(std::floor(std::log10(most) - std::log10(step))) + 2 : 3;
  const int digits = std::clamp(needed, 3, 15);
  return [digits, step](double value) {
    return std::abs(value) < step * 1e-6 ? std::string("0") : fmt::format("{:.{}g}", value, digits);
  };
}

std::string count_label(double value) {
  return grouped(std::llround(value));
}

}  // namespace

PlotAxis count_axis(int64_t most, std::string name) {
  const double highest = static_cast<double>(std::max<int64_t>(most, 1));
  return {0, end_above(0, highest, kTicksUp, true), std::move(name), true, count_label};
}

PlotAxis value_axis(double least, double most, std::string name) {
  if (!std::isfinite(least) || !std::isfinite(most)) return {0, 1, std::move(name)};
  const bool at_zero = least >= 0 && (most - least > most / 2 || most - least <= most * 1e-12);
  if (at_zero) return {0, end_above(0, most, kTicksUp), std::move(name)};
  if (most - least <= std::abs(most) * 1e-12) return {2 * least, 0, std::move(name)};
  const double span = most - least;
  const double step = round_step(span, kTicksUp);
  const double from = std::floor((least - span * 0.02) / step) * step;
  return {from, end_above(from, most, kTicksUp), std::move(name)};
}

std::string draw_mark(PlotMark mark, double x, double y, const char* color, double scale) {
  const double r = kMarkRadius * scale;
  const bool open = mark == PlotMark::kOpenDown || mark == PlotMark::kOpenUp;
  const std::string paint =
      open ? fmt::format(R"(fill="#fff" stroke="{}" stroke-width="1.4")", color) : fmt::format(R"(fill="{}")", color);
  switch (mark) {
    case PlotMark::kDown:
    case PlotMark::kOpenDown:
      return fmt::format(R"(<path d="M{:.1f} {:.1f}h{:.1f}l-{:.1f} {:.1f}Z" {}/>)", x - r, y - r, 2 * r, r, 1.8 * r,
                         paint);
    case PlotMark::kUp:
    case PlotMark::kOpenUp:
      return fmt::format(R"(<path d="M{:.1f} {:.1f}h{:.1f}l-{:.1f} -{:.1f}Z" {}/>)", x - r, y + r, 2 * r, r, 1.8 * r,
                         paint);
    case PlotMark::kDisc:
      return fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" {}/>)", x, y, 0.8 * r, paint);
    case PlotMark::kDiamond:
      return fmt::format(R"(<path d="M{:.1f} {:.1f}l{r:.1f} {r:.1f}l-{r:.1f} {r:.1f}l-{r:.1f} -{r:.1f}Z" {}/>)", x,
                         y - r, paint, fmt::arg("r", r));
    case PlotMark::kCross:
      return fmt::format(
          R"(<path d="M{:.1f} {:.1f}l{d:.1f} {d:.1f}m0 -{d:.1f}l-{d:.1f} {d:.1f}" fill="none" stroke="{}" stroke-width="1.8"/>)",
          x - 0.8 * r, y - 0.8 * r, color, fmt::arg("d", 1.6 * r));
  }
  return {};
}

PlotPanel::PlotPanel(PlotArea area, const std::string& title, PlotAxis x, PlotAxis y, bool labelled)
    : area_(area), x_(std::move(x)), y_(std::move(y)) {
  draw_axes(title, labelled);
}

void PlotPanel::draw_axes(const std::string& title, bool labelled) {
  if (!title.empty()) {
    svg_ += fmt::format("<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>\n", area_.left, area_.top - 8,
                        svg_escaped(title));
  }
  const std::vector<double> up = round_ticks(y_.from, y_.to, kTicksUp, y_.whole);
  const auto y_label = y_.label ? y_.label : number_label(up);
  for (const double tick : up) {
    svg_ += fmt::format(
        "<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        area_.left, y_at(tick), area_.right, area_.left - 8, y_at(tick) + 4, y_label(tick));
  }
  if (!y_.name.empty()) {
    svg_ += fmt::format("<text transform=\"translate(16 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                        area_.top + area_.height / 2, svg_escaped(y_.name));
  }
  if (y_.from != 0) remark(fmt::format("axis begins at {}", y_label(y_.from)));
  const std::vector<double> across = round_ticks(x_.from, x_.to, kTicksAcross, x_.whole);
  const auto x_label = x_.label ? x_.label : number_label(across);
  for (const double tick : across) {
    svg_ += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#444\"/>", x_at(tick),
                        bottom(), bottom() + 5);
    if (labelled) {
      svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", x_at(tick), bottom() + 18,
                          x_label(tick));
    }
    svg_ += "\n";
  }
  if (labelled && !x_.name.empty()) {
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                        (area_.left + area_.right) / 2, bottom() + 34, svg_escaped(x_.name));
  }
}

void PlotPanel::bars(const std::vector<int64_t>& heights, double from, double width, const char* color) {
  for (size_t i = 0; i < heights.size(); ++i) {
    if (heights[i] == 0) continue;
    const double left = x_at(from + width * static_cast<double>(i));
    const double right = x_at(from + width * static_cast<double>(i + 1));
    const double y = std::min(y_at(static_cast<double>(heights[i])), bottom() - 1);
    svg_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.2f}\" width=\"{:.1f}\" height=\"{:.2f}\" fill=\"{}\"/>\n", left, y,
                        std::max(right - left - 1, 1.0), bottom() - y, color);
  }
}

void PlotPanel::outline(const std::vector<int64_t>& heights, double from, double width, const LineStyle& style) {
  std::string path = fmt::format("M{:.1f} {:.2f}", x_at(from), bottom());
  for (size_t i = 0; i < heights.size(); ++i) {
    path += fmt::format("V{:.2f}H{:.1f}", y_at(static_cast<double>(heights[i])),
                        x_at(from + width * static_cast<double>(i + 1)));
  }
  svg_ += fmt::format("<path d=\"{}V{:.2f}\" fill=\"none\" {}/>\n", path, bottom(), style.attributes());
}

void PlotPanel::line(const PlotPoints& points, const LineStyle& style) {
  PlotPoints whole;
  for (const auto& [x, y] : points) {
    if (std::isfinite(y)) {
      whole.emplace_back(x, y);
    } else if (!whole.empty()) {
      piece(std::exchange(whole, {}), style);
    }
  }
  if (!whole.empty()) piece(whole, style);
}

void PlotPanel::piece(const PlotPoints& points, const LineStyle& style) {
  if (static_cast<double>(points.size()) > 2 * (area_.right - area_.left)) return band(points, style);
  if (points.size() == 1) {
    svg_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.2f}\" r=\"2.2\" fill=\"{}\" fill-opacity=\"{}\"/>\n",
                        x_at(points.front().first), y_at(points.front().second), style.color, style.opacity);
    return;
  }
  std::string path;
  for (const auto& [x, y] : points) path += fmt::format("{}{:.1f} {:.2f}", path.empty() ? "M" : "L", x_at(x), y_at(y));
  svg_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke-linejoin=\"round\" {}/>\n", path, style.attributes());
}

void PlotPanel::band(const PlotPoints& points, const LineStyle& style) {
  std::string above;
  std::string below;
  std::string mean;
  for (size_t at = 0; at < points.size();) {
    const double column = std::round(x_at(points[at].first));
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    double sum = 0;
    const size_t first = at;
    for (; at < points.size() && std::round(x_at(points[at].first)) == column; ++at) {
      low = std::min(low, points[at].second);
      high = std::max(high, points[at].second);
      sum += points[at].second;
    }
    above += fmt::format("{}{} {:.2f}", above.empty() ? "M" : "L", column, y_at(high));
    below = fmt::format("L{} {:.2f}", column, y_at(low)) + below;
    mean += fmt::format("{}{} {:.2f}", mean.empty() ? "M" : "L", column, y_at(sum / static_cast<double>(at - first)));
  }
  svg_ +=
      fmt::format("<path d=\"{}{}Z\" stroke=\"none\" fill-opacity=\"0.2\" fill=\"{}\"/>\n", above, below, style.color);
  svg_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke-linejoin=\"round\" {}/>\n", mean, style.attributes());
}

void PlotPanel::steps(const PlotPoints& points, double end, const LineStyle& style) {
  std::string path;
  double last = std::numeric_limits<double>::quiet_NaN();
  for (size_t i = 0; i < points.size(); ++i) {
    const auto& [x, y] = points[i];
    if (y == last || !std::isfinite(y)) continue;
    path += path.empty() ? fmt::format("M{:.1f} {:.2f}", x_at(x), y_at(y))
                         : fmt::format("H{:.1f}V{:.2f}", x_at(x), y_at(y));
    last = y;
  }
  if (path.empty()) return;
  svg_ += fmt::format("<path d=\"{}H{:.1f}\" fill=\"none\" {}/>\n", path, x_at(end), style.attributes());
}

void PlotPanel::mark(PlotMark mark, double x, double y, const char* color, double scale) {
  const double height = std::isnan(y) ? area_.top : std::clamp(y_at(y), area_.top, bottom());
  svg_ += draw_mark(mark, std::clamp(x_at(x), area_.left, area_.right), height, color, scale) + "\n";
}

void PlotPanel::rule(double x, const LineStyle& style) {
  svg_ += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" {3}/>\n", x_at(x), area_.top, bottom(),
                      style.attributes());
}

void PlotPanel::remark(const std::string& text) {
  remarks_ += (remarks_.empty() ? "" : "; ") + text;
}

std::string PlotPanel::draw() const {
  std::string svg = svg_;
  svg += fmt::format("<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"#444\"/>\n", area_.left, bottom(),
                     area_.right);
  if (remarks_.empty()) return svg;
  return svg + fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\" font-size=\"11\" fill=\"#555\">{}</text>\n",
                           area_.right, area_.top - 8, svg_escaped(remarks_));
}

}  // namespace pliant::cli
