// Bandwidth by size, both axes logarithmic: one panel for copies, reductions and collectives each.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "accel/bench.hpp"
#include "svg.hpp"

namespace pliant::cli {

namespace {

constexpr double kWidth = 750;
constexpr double kLeft = 72;
constexpr double kRight = 220;  // the names of the lines stand there
constexpr double kTop = 44;
constexpr double kPanel = 290;
constexpr double kPlot = 210;

/// Size and bandwidth, bytes per second.
using Line = std::vector<std::pair<double, double>>;
using Lines = std::vector<std::pair<std::string, Line>>;

Lines lines_of(const BenchStudy& study, const std::string& section) {
  Lines lines;
  for (const Measured& one : study.measured) {
    if (one.section != section || one.moved == 0) continue;
    if (lines.empty() || lines.back().first != one.what) lines.push_back({one.what, {}});
    lines.back().second.emplace_back(one.bytes, static_cast<double>(one.moved) / one.time.median_s);
  }
  return lines;
}

/// A logarithmic axis from pixel `begin` to pixel `end`.
struct Scale {
  double least;
  double most;
  double begin;
  double end;
  [[nodiscard]] double at(double value) const {
    const double part = most > least ? std::log(value / least) / std::log(most / least) : 0.5;
    return begin + part * (end - begin);
  }
};

Scale scale_of(const Lines& lines, bool sizes, double base, double begin, double end) {
  double least = INFINITY;
  double most = 0;
  for (const auto& [name, line] : lines) {
    for (const auto& [size, rate] : line) {
      least = std::min(least, sizes ? size : rate);
      most = std::max(most, sizes ? size : rate);
    }
  }
  if (sizes && least == most) return {least / base, most * base, begin, end};
  if (sizes) return {least, most, begin, end};
  return {std::pow(base, std::floor(std::log(least) / std::log(base))),
          std::pow(base, std::ceil(std::log(most) / std::log(base) + 1e-9)), begin, end};
}

std::string rate_label(double rate) {
  return rate >= 1e9   ? fmt::format("{:g} GB/s", rate / 1e9)
         : rate >= 1e6 ? fmt::format("{:g} MB/s", rate / 1e6)
                       : fmt::format("{:g} kB/s", rate / 1e3);
}

std::string grid(const Scale& x, const Scale& y) {
  std::string svg;
  for (double rate = y.least; rate <= y.most * 1.001; rate *= 10) {
    svg += fmt::format(
        "<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        x.begin, y.at(rate), x.end, x.begin - 8, y.at(rate) + 4, rate_label(rate));
  }
  const double octaves = std::log2(x.most / x.least);
  const double step = std::exp2(std::max(1.0, std::ceil(octaves / 7)));
  for (double size = x.least; size <= x.most * 1.001; size *= step) {
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#444\"/>"
        "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
        x.at(size), y.begin, y.begin + 5, y.begin + 18, size_text(static_cast<uint64_t>(std::llround(size))));
  }
  return svg +
         fmt::format("<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"#444\"/>\n", x.begin, y.begin, x.end);
}

/// Lines of one operation, by itself and between windows, have one colour; the dashes of all differ, so that those upon
/// each other are seen.
std::vector<LineStyle> styles_of(const Lines& lines) {
  std::vector<std::string> operations;
  std::vector<LineStyle> made;
  for (const auto& [name, line] : lines) {
    const std::string operation = name.substr(0, name.find(','));
    const auto found = std::find(operations.begin(), operations.end(), operation);
    const auto number = static_cast<size_t>(found - operations.begin());
    if (found == operations.end()) operations.push_back(operation);
    LineStyle style = curve_style(made.size(), lines.size());
    style.color = kFigureColors[number % kFigureColors.size()];
    made.push_back(style);
  }
  return made;
}

/// "equal to host to device" where an earlier line has the same bandwidths.
std::string equal_text(const Lines& lines, size_t number) {
  for (size_t i = 0; i < number; ++i) {
    if (lines[i].second == lines[number].second) return "equal to " + name_text(lines[i].first);
  }
  return {};
}

std::string panel(int number, const std::string& title, const Lines& lines) {
  const double top = kTop + number * kPanel + 18;
  const Scale x = scale_of(lines, true, 2, kLeft, kWidth - kRight);
  const Scale y = scale_of(lines, false, 10, top + kPlot, top);
  std::string svg =
      fmt::format("<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>\n", kLeft, top - 8, svg_escaped(title)) +
      grid(x, y);
  const std::vector<LineStyle> styles = styles_of(lines);
  double line_y = top + 8;
  for (size_t i = 0; i < lines.size(); ++i, line_y += 18) {
    std::string path;
    for (const auto& [size, rate] : lines[i].second) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.at(size), y.at(rate));
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n", x.at(size), y.at(rate),
                         styles[i].color);
    }
    svg += fmt::format(
        "<path d=\"{0}\" fill=\"none\" {1}/>"
        "<line x1=\"{2}\" y1=\"{3}\" x2=\"{4}\" y2=\"{3}\" {1}/>"
        "<text x=\"{5}\" y=\"{6}\">{7}</text>\n",
        path, styles[i].attributes(), kWidth - kRight + 16, line_y, kWidth - kRight + 44, kWidth - kRight + 50,
        line_y + 4, svg_escaped(name_text(lines[i].first)));
    const std::string equal = equal_text(lines, i);
    if (equal.empty()) continue;
    line_y += 14;
    svg += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"11\" fill=\"#555\">{}</text>\n", kWidth - kRight + 50,
                       line_y + 4, svg_escaped(equal));
  }
  return svg;
}

}  // namespace

std::string bench_figure(const BenchStudy& study) {
  std::string body;
  int panels = 0;
  for (const auto& [section, title] :
       {std::pair<std::string, std::string>{"copy", "Copies"},
        std::pair<std::string, std::string>{"reduce", "Sums and casts, bytes read and written"},
        std::pair<std::string, std::string>{"collectives", fmt::format("Collectives of {} ranks", study.ranks)}}) {
    const Lines lines = lines_of(study, section);
    if (!lines.empty()) body += panel(panels++, title, lines);
  }
  return svg_document(kWidth, kTop + std::max(panels, 1) * kPanel, kLeft,
                      fmt::format("{}: bandwidth by size", study.accelerator), body);
}

}  // namespace pliant::cli
