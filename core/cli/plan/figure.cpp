// Draws the figure. Units: SVG user units, 1/96 inch; y grows downwards.
#include "plan/figure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "output.hpp"
#include "svg.hpp"

namespace pliant::cli {

namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 400;
constexpr double kLeft = 64;
constexpr double kRight = 32;
constexpr double kTop = 44;
constexpr double kBottom = 48;
constexpr double kLegendLine = 18;
constexpr int64_t kColumns = 320;
constexpr int64_t kSamples = 64;  // heights asked for in one column
constexpr double kLogFrom = 300;  // last / first from which the x axis is logarithmic

class Axes {
 public:
  Axes(int64_t first, int64_t last, double lowest, double top)
      : first_(static_cast<double>(first)),
        last_(static_cast<double>(std::max(last, first + 1))),
        log_(last_ / first_ >= kLogFrom),
        lowest_(lowest),
        top_(top) {}

  [[nodiscard]] double x(double size) const {
    const double part = log_ ? std::log(size / first_) / std::log(last_ / first_) : (size - first_) / (last_ - first_);
    return kLeft + part * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double y(double height) const {
    return kHeight - kBottom - (height - lowest_) / (1 - lowest_) * (kHeight - kBottom - top_);
  }
  /// The size at part 0..1 of the axis.
  [[nodiscard]] double size_at(double part) const {
    return log_ ? first_ * std::pow(last_ / first_, part) : first_ + part * (last_ - first_);
  }

  [[nodiscard]] std::string draw() const {
    std::string svg;
    const double step = lowest_ >= 0.69 ? 0.05 : (lowest_ >= 0.39 ? 0.1 : 0.2);
    for (double height = lowest_; height < 1 + step / 2; height += step) {
      svg += fmt::format(
          "<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"#ddd\"/>"
          "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.0f}</text>\n",
          kLeft, y(height), kWidth - kRight, kLeft - 8, y(height) + 4, 100 * height);
    }
    for (const int64_t tick : ticks()) {
      const double at = x(static_cast<double>(tick));
      svg += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#444\"/>"
          "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
          at, kHeight - kBottom, kHeight - kBottom + 5, kHeight - kBottom + 18, grouped(tick));
    }
    svg += fmt::format("<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"#444\"/>\n", kLeft,
                       kHeight - kBottom, kWidth - kRight);
    if (lowest_ > 0) {
      svg += fmt::format(
          "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\" font-size=\"11\" fill=\"#555\">axis begins at {:.0f} "
          "%</text>\n",
          kWidth - kRight, top_ - 8, 100 * lowest_);
    }
    svg +=
        fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">ranks that the cluster has room for{}</text>\n",
                    (kLeft + kWidth - kRight) / 2, kHeight - 10, log_ ? " (log scale)" : "");
    svg += fmt::format(
        "<text transform=\"translate(16 {:.1f}) rotate(-90)\" text-anchor=\"middle\">device time that computes, %"
        "</text>\n",
        (top_ + kHeight - kBottom) / 2);
    return svg;
  }

 private:
  [[nodiscard]] std::vector<int64_t> ticks() const {
    std::vector<int64_t> at;
    if (log_) {
      for (double tick = 1; tick <= last_; tick *= 10) {
        if (tick >= first_) at.push_back(static_cast<int64_t>(tick));
      }
      return at;
    }
    for (const double tick : round_ticks(first_, last_, 8, true)) at.push_back(std::llround(tick));
    return at;
  }

  double first_;
  double last_;
  bool log_;
  double lowest_;
  double top_;
};

struct Column {
  double x = 0;
  int64_t sizes = 0;
  double least = 0;
  double mean = 0;
  double greatest = 0;
  bool operator==(const Column&) const = default;
};

/// What the heights are over the sizes of each column; one column for each size when they are few.
std::vector<Column> columns_of(const Series& series, const Axes& axes, int64_t first, int64_t last) {
  std::vector<Column> columns;
  const int64_t count = std::min(kColumns, last - first + 1);
  int64_t from = first;
  for (int64_t i = 1; i <= count && from <= last; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(count);
    const int64_t past = i == count
                             ? last + 1
                             : std::clamp(static_cast<int64_t>(std::floor(axes.size_at(part))) + 1, from + 1, last + 1);
    const int64_t stride = std::max<int64_t>(1, (past - from) / kSamples);
    Column column{axes.x((static_cast<double>(from) + static_cast<double>(past - 1)) / 2), past - from, 2, 0, -1};
    int64_t asked = 0;
    for (int64_t size = from; size < past; size += stride, ++asked) {
      const double height = series.height(size);
      column.least = std::min(column.least, height);
      column.greatest = std::max(column.greatest, height);
      column.mean += height;
    }
    column.mean /= static_cast<double>(asked);
    columns.push_back(column);
    from = past;
  }
  return columns;
}

/// Each height from half way to the size before to half way to the next: between two sizes there is none.
std::string steps_of(const std::vector<Column>& columns, const Axes& axes) {
  std::string path = fmt::format("M{:.1f} {:.2f}", columns.front().x, axes.y(columns.front().mean));
  for (size_t i = 1; i < columns.size(); ++i) {
    path += fmt::format("H{:.1f}V{:.2f}", (columns[i - 1].x + columns[i].x) / 2, axes.y(columns[i].mean));
  }
  return path + fmt::format("H{:.1f}", columns.back().x + (columns.size() == 1 ? 1 : 0));
}

std::string draw_series(const std::vector<Column>& columns, const Axes& axes, const LineStyle& style) {
  std::string band;
  std::string line;
  bool spread = false;
  for (const Column& column : columns) {
    const char* command = band.empty() ? "M" : "L";
    spread = spread || column.greatest > column.least;
    band += fmt::format("{}{:.1f} {:.2f}", command, column.x, axes.y(column.greatest));
    line += fmt::format("{}{:.1f} {:.2f}", command, column.x, axes.y(column.mean));
  }
  for (auto column = columns.rbegin(); column != columns.rend(); ++column) {
    band += fmt::format("L{:.1f} {:.2f}", column->x, axes.y(column->least));
  }
  const bool by_size = std::all_of(columns.begin(), columns.end(), [](const Column& one) { return one.sizes == 1; });
  std::string svg;
  if (spread) svg += fmt::format("<path d=\"{}Z\" fill=\"{}\" fill-opacity=\"0.18\"/>\n", band, style.color);
  svg += fmt::format("<path d=\"{}\" fill=\"none\" {} stroke-linejoin=\"round\"/>\n",
                     by_size ? steps_of(columns, axes) : line, style.attributes());
  return svg;
}

/// ", equal to v0.1" where an earlier one has the same heights at all sizes.
std::string equal_text(const std::vector<Series>& series, const std::vector<std::vector<Column>>& drawn,
                       size_t number) {
  for (size_t i = 0; i < number; ++i) {
    if (drawn[i] == drawn[number]) return fmt::format(", equal to {}", series[i].name);
  }
  return {};
}

}  // namespace

std::string efficiency_figure(const std::vector<Series>& series, int64_t first, int64_t last,
                              const std::string& title) {
  const double top = kTop + kLegendLine * static_cast<double>(series.size()) + 4;
  const Axes flat(first, last, 0, top);
  std::vector<std::vector<Column>> drawn;
  double lowest = 1;
  for (const Series& one : series) {
    drawn.push_back(columns_of(one, flat, first, last));
    for (const Column& column : drawn.back()) lowest = std::min(lowest, column.least);
  }
  lowest = std::max(0.0, std::floor(10 * lowest - 0.2) / 10);  // a round tick, a little below
  const Axes axes(first, last, lowest, top);
  std::string body = axes.draw();
  for (size_t i = 0; i < drawn.size(); ++i) {
    body += draw_series(drawn[i], axes, curve_style(i, drawn.size()));
    body += legend_line(kLeft, kTop + kLegendLine * static_cast<double>(i), curve_style(i, drawn.size()),
                        series[i].name, series[i].remark + equal_text(series, drawn, i));
  }
  return svg_document(kWidth, kHeight, kLeft, title, body);
}

}  // namespace pliant::cli
