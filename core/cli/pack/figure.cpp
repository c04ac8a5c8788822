// Draws three panels below each other: lengths, fill of the packs, learning rate.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "output.hpp"
#include "pack/views.hpp"
#include "svg.hpp"

namespace pliant::cli {

namespace {

constexpr double kWidth = 720;
constexpr double kLeft = 72;
constexpr double kRight = 28;
constexpr double kFirstPanel = 44;
constexpr double kPanel = 210;  // with its labels
constexpr double kPlot = 140;   // the part with the data

using Label = std::function<std::string(double)>;

struct Axis {
  double from = 0;
  double to = 1;
  std::string name;
  Label label;

  [[nodiscard]] double part(double value) const { return to > from ? (value - from) / (to - from) : 0.5; }
  [[nodiscard]] std::vector<double> ticks(int most) const {
    if (!(to > from)) return {from};
    const double step = round_step(to - from, most);
    std::vector<double> at;
    for (double tick = std::ceil(from / step - 1e-9) * step; tick <= to + step * 1e-9; tick += step) at.push_back(tick);
    return at;
  }
};

class Panel {
 public:
  Panel(int number, const std::string& title, Axis x, Axis y)
      : top_(kFirstPanel + number * kPanel + 18), x_(std::move(x)), y_(std::move(y)) {
    svg_ = fmt::format("<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>\n", kLeft, top_ - 8, svg_escaped(title));
    for (const double tick : y_.ticks(4)) {
      svg_ += fmt::format(
          "<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"#ddd\"/>"
          "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
          kLeft, y_at(tick), kWidth - kRight, kLeft - 8, y_at(tick) + 4, y_.label(tick));
    }
    for (const double tick : x_.ticks(8)) {
      svg_ += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#444\"/>"
          "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
          x_at(tick), top_ + kPlot, top_ + kPlot + 5, top_ + kPlot + 18, x_.label(tick));
    }
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", (kLeft + kWidth - kRight) / 2,
                        top_ + kPlot + 34, svg_escaped(x_.name));
  }

  /// One bar for each of `heights`, side by side over the whole width.
  void bars(const std::vector<int64_t>& heights, const char* color) {
    const double step = (kWidth - kLeft - kRight) / static_cast<double>(heights.size());
    for (size_t i = 0; i < heights.size(); ++i) {
      if (heights[i] == 0) continue;
      const double y = y_at(static_cast<double>(heights[i]));
      svg_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.2f}\" width=\"{:.1f}\" height=\"{:.2f}\" fill=\"{}\"/>\n",
                          kLeft + step * static_cast<double>(i), y, std::max(step - 1, 1.0), top_ + kPlot - y, color);
    }
  }
  void line(const std::vector<std::pair<double, double>>& points, const char* color) {
    std::string path;
    for (const auto& [x, y] : points)
      path += fmt::format("{}{:.1f} {:.2f}", path.empty() ? "M" : "L", x_at(x), y_at(y));
    svg_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.4\" stroke-linejoin=\"round\"/>\n",
                        path, color);
  }
  [[nodiscard]] std::string draw() const {
    return svg_ + fmt::format("<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"#444\"/>\n", kLeft,
                              top_ + kPlot, kWidth - kRight);
  }

 private:
  [[nodiscard]] double x_at(double value) const { return kLeft + x_.part(value) * (kWidth - kLeft - kRight); }
  [[nodiscard]] double y_at(double value) const { return top_ + kPlot * (1 - y_.part(value)); }

  double top_;
  Axis x_;
  Axis y_;
  std::string svg_;
};

std::string count_label(double value) {
  return grouped(std::llround(value));
}

Axis counts(const std::vector<int64_t>& heights) {
  const int64_t most = heights.empty() ? 0 : *std::max_element(heights.begin(), heights.end());
  return {0, static_cast<double>(std::max<int64_t>(most, 1)), "", count_label};
}

Panel rate_panel(int number, const PackStudy& study) {
  const RateCurve& curve = *study.learning_rate;
  const double margin = std::max((curve.most - curve.least) * 0.05, curve.most * 1e-3);
  const Axis steps{0, static_cast<double>(std::max<int64_t>(study.summary.batches - 1, 1)), "step", count_label};
  const Axis rates{curve.least - margin, curve.most + margin, "",
                   [](double value) { return fmt::format("{:.3g}", value); }};
  Panel panel(number, fmt::format("Learning rate of each step, by {}", study.learning_rate_rule), steps, rates);
  panel.line(curve.points, kFigureColors[2]);
  return panel;
}

}  // namespace

std::string pack_figure(const PackStudy& study) {
  const Axis lengths{0, static_cast<double>(study.longest_sequence), "tokens of a sequence", count_label};
  Panel of_lengths(0, fmt::format("Lengths of {} sequences", grouped(study.sequences)), lengths,
                   counts(study.length_counts));
  of_lengths.bars(study.length_counts, kFigureColors[0]);
  const Axis fill{0, 100, "fill of a pack, %", count_label};
  Panel of_fill(1, fmt::format("Fill of {} packs", grouped(study.packs())), fill, counts(study.fill_counts));
  of_fill.bars(study.fill_counts, kFigureColors[1]);
  std::string body = of_lengths.draw() + of_fill.draw();
  int panels = 2;
  if (study.learning_rate && !study.learning_rate->points.empty()) body += rate_panel(panels++, study).draw();
  const std::string title = fmt::format("{}: {:.2f} % filled", study.sampler, 100 * study.packing.efficiency);
  return svg_document(kWidth, kFirstPanel + panels * kPanel, kLeft, title, body);
}

}  // namespace pliant::cli
