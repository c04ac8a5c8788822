// The frame of a figure.
#include "svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace pliant::cli {

std::string svg_escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string svg_document(double width, double height, double left, const std::string& title, const std::string& body) {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
             "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222\">\n"
             "<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n"
             "<text x=\"{3}\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{2}</text>\n",
             width, height, svg_escaped(title), left) +
         body + "</svg>\n";
}

double round_step(double span, int most) {
  double step = std::pow(10, std::floor(std::log10(span / most)));
  for (const double times : {2.0, 2.5, 2.0}) {
    if (span / step > most) step *= times;
  }
  return step;
}

namespace {

double tick_step(double span, int most, bool whole) {
  const double step = round_step(span, most);
  return whole ? std::max(1.0, step) : step;
}

}  // namespace

std::vector<double> round_ticks(double from, double to, int most, bool whole) {
  if (!(to > from)) return {from};
  const double step = tick_step(to - from, most, whole);
  std::vector<double> ticks;
  const double last = std::floor(to / step + 1e-9);
  for (double number = std::ceil(from / step - 1e-9); number <= last; ++number) ticks.push_back(number * step);
  return ticks;
}

double end_above(double from, double highest, int most, bool whole) {
  constexpr double kRoom = 0.04;  // of the axis
  const double span = std::max(highest - from, std::abs(highest) * 1e-9);
  const double least = from + (span > 0 ? span / (1 - kRoom) : 1);
  const double step = tick_step(least - from, most, whole) / 5;
  const double unit = whole ? std::max(1.0, step) : step;
  return std::ceil(least / unit - 1e-9) * unit;
}

std::string LineStyle::attributes() const {
  std::string text = fmt::format(R"(stroke="{}" stroke-width="{}")", color, width);
  if (!dashes.empty()) text += fmt::format(R"( stroke-dasharray="{}")", dashes);
  if (opacity < 1) text += fmt::format(R"( stroke-opacity="{}")", opacity);
  return text;
}

LineStyle curve_style(size_t number, size_t count) {
  constexpr std::array<double, 3> kWidths{3.2, 2.4, 2};
  constexpr double kMostPart = 7;
  constexpr double kMostPeriod = 28;  // as long as a sample in a legend
  const auto curves = static_cast<double>(std::max(count, number + 1));
  const auto before = static_cast<double>(number);
  const double part = std::min(kMostPart, kMostPeriod / curves);  // of the way, of each curve
  LineStyle style{kFigureColors[number % kFigureColors.size()], kWidths[std::min(number, kWidths.size() - 1)]};
  if (number > 0) style.dashes = fmt::format("{:.3g} {:.3g}", part * (curves - before), part * before);
  return style;
}

std::string legend_line(double x, double y, const LineStyle& style, const std::string& name, const std::string& text) {
  constexpr double kLength = 28;
  return fmt::format(
      "<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" {}/><text x=\"{}\" y=\"{:.1f}\">"
      "<tspan font-weight=\"bold\">{}</tspan>{}{}</text>\n",
      x, y, x + kLength, y, style.attributes(), x + kLength + 8, y + 4, svg_escaped(name),
      name.empty() || text.empty() ? "" : "  ", svg_escaped(text));
}

}  // namespace pliant::cli
