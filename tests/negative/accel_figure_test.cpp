// The figure of `pliant accel bench`: lines that lie upon each other.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "accel/bench.hpp"
#include "negative/svg_elements.hpp"

namespace {

using pliant::cli::BenchStudy;
using pliant::cli::Measured;
using pliant::test::svg_elements;
using pliant::test::SvgElement;

/// A line of three sizes; `slower`: by how much.
void add(BenchStudy& study, const std::string& section, const std::string& what, double slower = 1) {
  for (const uint64_t bytes : {4096U, 65536U, 1048576U}) {
    Measured one;
    one.section = section;
    one.what = what;
    one.bytes = one.moved = bytes;
    one.time.median_s = slower * (1e-6 + static_cast<double>(bytes) / 1e10);
    study.measured.push_back(one);
  }
}

std::vector<SvgElement> lines_in(const std::string& figure) {
  std::vector<SvgElement> lines;
  for (const SvgElement& one : svg_elements(figure, "path")) {
    if (one.of("fill") == "none") lines.push_back(one);
  }
  return lines;
}

}  // namespace

TEST_CASE("equal bandwidths are lines that are all seen, and the legend says what they are equal to") {
  BenchStudy study;
  study.accelerator = "host";
  add(study, "copy", "host_to_device");
  add(study, "copy", "device_to_host");
  add(study, "copy", "device_to_device", 0.5);
  const std::string figure = pliant::cli::bench_figure(study);
  const auto lines = lines_in(figure);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].of("d") == lines[1].of("d"));
  CHECK(lines[0].of("stroke-dasharray").empty());
  CHECK(lines[1].of("stroke-dasharray") == "14 7");
  CHECK(lines[0].number("stroke-width") > lines[1].number("stroke-width"));
  CHECK(figure.find(">equal to host to device</text>") != std::string::npos);
  CHECK(figure.find("equal to", figure.find("equal to") + 1) == std::string::npos);
}

TEST_CASE("an operation has one colour with and without windows, and each line has dashes of its own") {
  BenchStudy study;
  study.accelerator = "host";
  const std::vector<std::string> names{"all_gather", "all_gather, windows", "all_reduce", "all_reduce, windows"};
  for (size_t i = 0; i < names.size(); ++i) add(study, "collectives", names[i], 1 + static_cast<double>(i));
  const auto lines = lines_in(pliant::cli::bench_figure(study));
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].of("stroke") == lines[1].of("stroke"));
  CHECK(lines[2].of("stroke") == lines[3].of("stroke"));
  CHECK(lines[0].of("stroke") != lines[2].of("stroke"));
  std::set<std::string> dashes;
  for (const SvgElement& one : lines) dashes.insert(one.of("stroke-dasharray"));
  CHECK(dashes.size() == 4);
}
