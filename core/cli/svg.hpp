// What all figures share: one look, and text that is safe in SVG. Units: 1/96 inch; y grows downwards.
#pragma once

#include <array>
#include <string>

namespace pliant::cli {

/// Okabe and Ito's colours, told apart by everybody; none of them is lost in grey.
inline constexpr std::array<const char*, 6> kFigureColors{"#0072B2", "#D55E00", "#009E73",
                                                          "#CC79A7", "#E69F00", "#56B4E9"};

std::string svg_escaped(const std::string& text);
/// A document with a title in large letters; `left` is where that begins.
std::string svg_document(double width, double height, double left, const std::string& title, const std::string& body);
/// Steps of 1, 2 or 5 times a power of ten: at most `most` of them make `span` > 0.
double round_step(double span, int most);

}  // namespace pliant::cli
