// What all figures share: one look, and text that is safe in SVG. Units: 1/96 inch; y grows downwards.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace pliant::cli {

/// Okabe and Ito's colours, told apart by everybody; none of them is lost in grey.
inline constexpr std::array<const char*, 6> kFigureColors{"#0072B2", "#D55E00", "#009E73",
                                                          "#CC79A7", "#E69F00", "#56B4E9"};

std::string svg_escaped(const std::string& text);
/// A document with a title in large letters; `left` is where that begins.
std::string svg_document(double width, double height, double left, const std::string& title, const std::string& body);
/// Steps of 1, 2 or 5 times a power of ten: at most `most` of them make `span` > 0.
double round_step(double span, int most);
/// The multiples of a round step from `from` to `to`, about `most` of them. `whole`: none between two whole numbers.
std::vector<double> round_ticks(double from, double to, int most, bool whole = false);
/// Where an axis from `from` may end, so that there is room above `highest`: at a fifth of a step of its ticks, or at a
/// whole number.
double end_above(double from, double highest, int most, bool whole = false);

struct LineStyle {
  const char* color = "#444";
  double width = 1.5;
  std::string dashes = "";  ///< stroke-dasharray
  double opacity = 1;
  /// As attributes of an element.
  [[nodiscard]] std::string attributes() const;
};
/// Of curve `number` of `count`: the first is solid and the widest, the next ones are narrower, and the dashes of each
/// leave more of those before it. Of curves that lie upon each other, drawn in their order, each is seen for an equal
/// part of the way.
LineStyle curve_style(size_t number, size_t count);
/// A sample of the line from (x, y) on, 28 long, and `text` behind it: `name` in bold, then the rest.
std::string legend_line(double x, double y, const LineStyle& style, const std::string& name, const std::string& text);

}  // namespace pliant::cli
