// The frame of a figure.
#include "svg.hpp"

#include <fmt/format.h>

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

}  // namespace pliant::cli
