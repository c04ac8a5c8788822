// The tables behind a release say what a scan over the trace would say.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "program.hpp"
#include "releases.hpp"
#include "reuse.hpp"

namespace pliant::coordinator::zero3 {
namespace {

/// The rule as it is said: whole visits are looked at until `distance` elements were used.
bool reused_by_scan(const sdk::Model& model, const std::vector<uint32_t>& trace, uint32_t parameter, size_t visit,
                    uint64_t distance) {
  uint64_t used = 0;
  for (size_t i = visit; i < trace.size() && used < distance; ++i) {
    for (const uint32_t other : model.modules[trace[i]].own) {
      if (other == parameter) return true;
      used += model.parameters[other].elements;
    }
  }
  return false;
}

TEST_CASE("the table of reuse answers as a scan of the trace does") {
  const bool held = rc::check([] {
    const auto layers = *rc::gen::container<std::vector<std::vector<uint64_t>>>(
        rc::gen::container<std::vector<uint64_t>>(rc::gen::inRange<uint64_t>(0, 30)));
    RC_PRE(!layers.empty());
    const sdk::Model model = test::layered(layers);
    const auto modules = static_cast<uint32_t>(model.modules.size());
    const auto trace = *rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange<uint32_t>(0, modules));
    const Layout layout(model, false);
    ReuseTable table;
    table.build(layout, trace, model.parameters, ReuseTable::Reach::kUsed);
    const auto distance = *rc::gen::inRange<uint64_t>(0, 200);
    for (uint32_t parameter = 0; parameter < model.parameters.size(); ++parameter) {
      for (size_t visit = 0; visit <= trace.size(); ++visit) {
        RC_ASSERT(table.reused(parameter, visit, distance) == reused_by_scan(model, trace, parameter, visit, distance));
      }
    }
  });
  CHECK(held);
}

TEST_CASE("decisions are found again in the order of before and out of it") {
  Releases releases;
  for (uint32_t step = 0; step < 4; ++step) releases.add(step % 2, step).members = {step};
  for (int round = 0; round < 2; ++round) {
    for (const uint32_t step : {0U, 3U, 1U, 2U, 2U, 0U}) {
      const Decision* found = releases.find(step % 2, step);
      REQUIRE(found != nullptr);
      CHECK(found->members == std::vector<uint32_t>{step});
    }
  }
  CHECK(releases.find(1, 0) == nullptr);
  releases.clear();
  CHECK(releases.find(0, 0) == nullptr);
}

TEST_CASE("a leaf uses what lies below it, and lists are in the order of the tables") {
  sdk::Model model = test::layered({{1}, {1}, {1}});
  model.modules[0].children = {1};
  model.modules[1].children = {3, 2};
  model.modules[1].leaf = true;
  model.modules[1].external = {0};
  const Layout layout(model, false);
  CHECK(layout.used(1) == std::vector<uint32_t>{0, 1, 2});
  CHECK(layout.listed(1, true) == std::vector<uint32_t>{0, 2, 1, 0});
  CHECK(layout.listed(1, false) == std::vector<uint32_t>{0, 0});
}

}  // namespace
}  // namespace pliant::coordinator::zero3
