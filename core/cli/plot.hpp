// Panels of a figure: two axes each, and bars, lines, steps and marks between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "svg.hpp"

namespace pliant::cli {

struct PlotAxis {
  double from = 0;
  double to = 1;
  std::string name;    ///< what is counted or measured; empty: nothing is written
  bool whole = false;  ///< the values are whole numbers: no tick lies between two of them
  /// The text of a tick; empty: the number, with as many digits as the ticks need to differ.
  std::function<std::string(double)> label = {};

  /// Where `value` lies: 0 at the begin, 1 at the end.
  [[nodiscard]] double part(double value) const { return to > from ? (value - from) / (to - from) : 0.5; }
};

/// From 0 to a whole number above `most`.
PlotAxis count_axis(int64_t most, std::string name);
/// Around values from `least` to `most`: from 0 where the values then still take more than half of it, else from a tick
/// below them.
PlotAxis value_axis(double least, double most, std::string name);

/// In SVG user units, without the labels of the axes.
struct PlotArea {
  double left = 0;
  double right = 0;
  double top = 0;
  double height = 0;
};

enum class PlotMark { kDown, kUp, kOpenDown, kOpenUp, kDisc, kDiamond, kCross };
/// A mark around (x, y), `scale` times as large as usual.
std::string draw_mark(PlotMark mark, double x, double y, const char* color, double scale = 1);

using PlotPoints = std::vector<std::pair<double, double>>;

/// A y axis that does not begin at 0 says so above its panel.
class PlotPanel {
 public:
  /// `title`: empty for none. `labelled`: the x axis has its numbers and its name; panels above one that shares it have
  /// not.
  PlotPanel(PlotArea area, const std::string& title, PlotAxis x, PlotAxis y, bool labelled = true);

  /// A bar of `width` on the x axis for each of `heights`, side by side from `from` on. None is too low to be seen.
  void bars(const std::vector<int64_t>& heights, double from, double width, const char* color);
  /// The outline of such bars.
  void outline(const std::vector<int64_t>& heights, double from, double width, const LineStyle& style);
  /// More points than pixels become a band from the least to the most of each
  /// pixel, with a line of their mean. A single point is a dot. A y that is not finite interrupts the line.
  void line(const PlotPoints& points, const LineStyle& style);
  /// The same, each value from its x on to the next one; the last to `end`.
  void steps(const PlotPoints& points, double end, const LineStyle& style);
  /// Outside of the panel it stands at its edge.
  void mark(PlotMark mark, double x, double y, const char* color, double scale = 1);
  /// From top to bottom.
  void rule(double x, const LineStyle& style);
  /// A remark above the panel, on the right.
  void remark(const std::string& text);

  [[nodiscard]] std::string draw() const;

 private:
  [[nodiscard]] double x_at(double value) const { return area_.left + x_.part(value) * (area_.right - area_.left); }
  [[nodiscard]] double y_at(double value) const { return area_.top + area_.height * (1 - y_.part(value)); }
  [[nodiscard]] double bottom() const { return area_.top + area_.height; }
  void draw_axes(const std::string& title, bool labelled);
  void band(const PlotPoints& points, const LineStyle& style);
  void piece(const PlotPoints& points, const LineStyle& style);

  PlotArea area_;
  PlotAxis x_;
  PlotAxis y_;
  std::string svg_;
  std::string remarks_;
};

}  // namespace pliant::cli
