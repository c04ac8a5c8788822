// What a schedule by demand could hold, found by trying every place, is never refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "gradients.hpp"
#include "trainer.hpp"

using namespace pliant::coordinator::planned;
using namespace pliant::coordinator::planned::test;

namespace {

/// Whole from one call to another, below `top`, in units.
struct Interval {
  size_t begin;
  size_t end;
  uint64_t units;
  uint64_t top;
};

/// Whether there are places in which no two overlap: all are tried, of one interval after the other, up to so many.
bool has_places(const std::vector<Interval>& all, std::vector<uint64_t>& places, uint64_t& tries) {
  const size_t number = places.size();
  if (number == all.size()) return true;
  if (tries == 0) return false;
  --tries;
  const Interval& one = all[number];
  for (uint64_t place = 0; place + one.units <= one.top; ++place) {
    bool is_free = true;
    for (size_t i = 0; i < number && is_free; ++i) {
      const bool meets = all[i].end > one.begin && places[i] < place + one.units && place < places[i] + all[i].units;
      is_free = !meets;
    }
    if (!is_free) continue;
    places.push_back(place);
    if (has_places(all, places, tries)) return true;
    places.pop_back();
  }
  return false;
}

class Program {
 public:
  template <class Draw>
  Program(const Draw& draw, bool has_external, bool has_gradients) {
    const uint32_t modules = 2 + draw() % 6;
    for (uint32_t module = 0; module < modules; ++module) {
      model_.modules.emplace_back();
      if (module > 0) model_.modules[draw() % module].children.push_back(module);
      const uint32_t own = draw() % 3;
      for (uint32_t i = 0; i < own; ++i) {
        sdk::Parameter parameter;
        parameter.elements = kUnit / 4 * (1 + draw() % 4);
        parameter.bytes = parameter.elements * 4;
        parameter.external = has_external && draw() % 5 == 0;
        parameter.frozen = !has_gradients || draw() % 3 == 0;
        if (!parameter.frozen) parameter.gradient_bytes = parameter.bytes;
        if (!parameter.frozen && draw() % 3 == 0) parameter.received_bytes = parameter.bytes;
        model_.modules.back().own.push_back(static_cast<uint32_t>(model_.parameters.size()));
        model_.parameters.push_back(parameter);
      }
    }
    for (uint32_t module = 0; module < modules && !model_.parameters.empty(); ++module) {  // shared
      if (draw() % 3 != 0) continue;
      const uint32_t other = draw() % static_cast<uint32_t>(model_.parameters.size());
      std::vector<uint32_t>& own = model_.modules[module].own;
      if (std::find(own.begin(), own.end(), other) == own.end()) model_.modules[module].external.push_back(other);
    }
  }

  /// Forward, and backward the other way round; `order` says which modules are left out or visited twice.
  [[nodiscard]] std::vector<Call> pass(uint32_t order) const {
    std::vector<Call> calls;
    for (const bool backward : {false, true}) walk(0, backward, order, calls);
    return calls;
  }
  /// Whether a schedule by demand fits: what is entered is whole, and what is external, until the step ends.
  [[nodiscard]] bool fits(const std::vector<Call>& calls, uint64_t budget) const {
    sdk::Model model = model_;
    model.budget = budget * kUnit;
    const Layout layout(model);
    Gradients gradients(layout, 0, false);
    gradients.begin_pass();
    std::vector<uint64_t> tops;
    std::map<uint32_t, std::pair<uint32_t, size_t>> open;  // by parameter: how often it is used, and its interval
    std::vector<Interval> all;
    for (size_t at = 0; at < calls.size(); ++at) {
      const Call call = calls[at];
      const auto used = layout.used(module_of(call));
      if (leaves(call)) {
        for (const uint32_t parameter : used) {
          if (--open[parameter].first == 0 && !layout.parameter(parameter).external) {
            all[open[parameter].second].end = at;
            open.erase(parameter);
          }
        }
        gradients.leave(call);
      } else {
        for (const uint32_t parameter : used) {
          const auto [one, is_new] = open.try_emplace(parameter, 0, all.size());
          ++one->second.first;
          if (is_new) all.push_back({at, calls.size(), layout.bytes(parameter) / kUnit, budget});
        }
        gradients.enter(call);
      }
      const uint64_t depth = gradients.depth() / kUnit;
      if (depth > budget) return false;
      tops.push_back(budget - depth);
    }
    if (gradients.end_pass() / kUnit > budget) return false;
    for (Interval& one : all) {
      for (size_t at = one.begin; at < one.end; ++at) one.top = std::min(one.top, tops[at]);
      uint64_t sum = 0;
      for (const Interval& other : all) sum += other.begin <= one.begin && other.end > one.begin ? other.units : 0;
      if (sum > tops[one.begin]) return false;  // the search would take long to find that
    }
    std::vector<uint64_t> places;
    uint64_t tries = 100'000;
    return has_places(all, places, tries);
  }
  /// Whether the planner plays these passes, each a step.
  [[nodiscard]] bool is_played(const std::vector<std::vector<Call>>& passes, uint64_t budget, uint64_t ahead) const {
    sdk::Model model = model_;
    model.budget = budget * kUnit;
    Trainer trainer(model, {16, ahead, 0});
    try {
      for (const std::vector<Call>& calls : passes) {
        trainer.begin_pass();
        for (const Call call : calls) {
          if (leaves(call)) {
            trainer.leave(module_of(call), is_backward(call), recomputes(call));
          } else {
            trainer.enter(module_of(call), is_backward(call), recomputes(call));
          }
        }
        trainer.end_pass();
        trainer.end_step();
      }
    } catch (const sdk::Failure& failure) {
      REQUIRE(failure.status() == PLIANT_RESOURCE_EXHAUSTED);
      return false;
    } catch (const NoRoom&) {
      return false;
    }
    return true;
  }

 private:
  void walk(uint32_t module, bool backward, uint32_t order, std::vector<Call>& calls) const {
    calls.push_back(call_of({module, backward, false, {}}, false));
    std::vector<uint32_t> children = model_.modules[module].children;
    if (backward) std::reverse(children.begin(), children.end());
    for (const uint32_t child : children) {
      if ((order >> (child % 4) & 1U) != 0) continue;
      walk(child, backward, order, calls);
      if (!backward && (order >> (4 + child % 2) & 1U) != 0) walk(child, backward, order, calls);
    }
    if (backward && order % 5 == 4) {
      calls.push_back(call_of({module, false, true, {}}, false));
      calls.push_back(call_of({module, false, true, {}}, true));
    }
    calls.push_back(call_of({module, backward, false, {}}, true));
  }

  sdk::Model model_;
};

struct Compared {
  int programs = 0;
  int fit = 0;
  int refused = 0;  ///< of these
};

Compared compared(uint32_t seed, int programs, bool has_external, bool has_gradients) {
  std::mt19937 drawn(seed);
  const auto draw = [&drawn] { return static_cast<uint32_t>(drawn()); };
  Compared made;
  for (; made.programs < programs; ++made.programs) {
    const Program program(draw, has_external, has_gradients);
    std::vector<std::vector<Call>> passes;
    const bool repeats = draw() % 2 == 0;
    const uint32_t order = draw() % 3 == 0 ? 0 : draw() % 64;
    for (int pass = 0; pass < 5; ++pass) passes.push_back(program.pass(repeats ? order : draw() % 64));
    uint64_t budget = 1;  // the least that suffices, or a little more
    const auto all_fit = [&] {
      return std::all_of(passes.begin(), passes.end(), [&](const auto& one) { return program.fits(one, budget); });
    };
    while (!all_fit()) ++budget;
    CAPTURE(made.programs);
    CAPTURE(budget);
    if (budget > 1 && !has_external) CHECK_FALSE(program.is_played(passes, budget - 1, 2));
    budget += draw() % 3;
    ++made.fit;
    if (!program.is_played(passes, budget, draw() % 3)) ++made.refused;
  }
  return made;
}

}  // namespace

TEST_CASE("of nested modules and shared parameters nothing is refused that fits by demand") {
  const Compared made = compared(11, 2000, false, false);
  MESSAGE(made.refused, " of ", made.fit, " were refused");
  CHECK(made.refused == 0);
}

TEST_CASE("with gradients, too, nothing is refused that fits by demand") {
  const Compared made = compared(12, 2000, false, true);
  MESSAGE(made.refused, " of ", made.fit, " were refused");
  CHECK(made.refused == 0);
}

TEST_CASE(
    "where parameters stay to the end of the step, a fiftieth at most is refused of what would fit had one known it "
    "all") {
  const Compared made = compared(13, 2000, true, false);
  MESSAGE(made.refused, " of ", made.fit, " were refused");
  CHECK(made.refused <= made.fit / 50);
}
