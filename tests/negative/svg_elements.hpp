// Reads a figure: its elements in order, with attributes and text.
#pragma once

#include <map>
#include <regex>
#include <string>
#include <vector>

namespace pliant::test {

struct SvgElement {
  std::string name;  ///< "rect", "path", ...
  std::map<std::string, std::string> attributes;
  std::string text;  ///< up to the next element

  [[nodiscard]] std::string of(const std::string& attribute) const {
    const auto found = attributes.find(attribute);
    return found == attributes.end() ? std::string() : found->second;
  }
  [[nodiscard]] double number(const std::string& attribute) const { return std::stod(of(attribute)); }
};

/// Those called `name`.
inline std::vector<SvgElement> svg_elements(const std::string& svg, const std::string& name) {
  static const std::regex element("<(\\w+)([^>]*)>([^<]*)");
  static const std::regex attribute("([\\w-]+)=\"([^\"]*)\"");
  std::vector<SvgElement> found;
  for (std::sregex_iterator at(svg.begin(), svg.end(), element), end; at != end; ++at) {
    if ((*at)[1] != name) continue;
    SvgElement one{name, {}, (*at)[3]};
    const std::string attributes = (*at)[2];
    for (std::sregex_iterator of(attributes.begin(), attributes.end(), attribute); of != end; ++of) {
      one.attributes[(*of)[1]] = (*of)[2];
    }
    found.push_back(one);
  }
  return found;
}

/// The number with which a path begins, across or down, as "M72.0 143.20..." does.
inline std::vector<double> path_numbers(const std::string& path) {
  static const std::regex number("-?[0-9]+(\\.[0-9]+)?");
  std::vector<double> found;
  for (std::sregex_iterator at(path.begin(), path.end(), number), end; at != end; ++at)
    found.push_back(std::stod(at->str()));
  return found;
}

}  // namespace pliant::test
