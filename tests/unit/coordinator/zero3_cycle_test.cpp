// Answers that are copied from a record are those that the schedule would decide, whatever comes in between.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <optional>
#include <tuple>

#include "cycle.hpp"
#include "program.hpp"

namespace pliant::coordinator::zero3 {
namespace {

/// One answer: the actions, the counters after it, or nothing where it is refused.
struct Said {
  std::vector<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, uint64_t>> actions;
  std::tuple<int32_t, int64_t, uint64_t, uint64_t> counts;
  bool operator==(const Said&) const = default;
};

template <class Coordinator, class Call>
std::optional<Said> said_by(Coordinator& coordinator, const Call& call) {
  std::vector<pliant_action> room(4096);
  pliant_action_list list{sizeof(list), 0, room.size(), 0, room.data()};
  try {
    sdk::Actions actions(list);
    call(coordinator, actions);
  } catch (const sdk::Failure&) {
    return std::nullopt;
  }
  Said said;
  for (uint64_t i = 0; i < list.count; ++i) {
    said.actions.emplace_back(room[i].kind, room[i].parameter, room[i].group, room[i].flags, room[i].place);
  }
  const sdk::CoordinatorCounts counts = coordinator.counts();
  said.counts = {counts.trace, counts.whole, counts.visits, counts.ahead};
  return said;
}

sdk::Model model_of_layers() {
  std::vector<std::vector<uint64_t>> layers;
  for (size_t i = *rc::gen::inRange<size_t>(1, 6); i > 0; --i) {
    layers.push_back(*rc::gen::resize(3, rc::gen::container<std::vector<uint64_t>>(rc::gen::inRange<uint64_t>(0, 30))));
  }
  sdk::Model model = test::layered(layers);
  for (sdk::Parameter& parameter : model.parameters) {
    parameter.persistent = *rc::gen::inRange(0, 8) == 0;
    parameter.frozen = *rc::gen::inRange(0, 5) == 0;
  }
  if (!model.parameters.empty()) model.modules[0].external = {0};
  return model;
}

struct Step {
  uint32_t module;
  bool enters;
  bool backward;
  bool recompute;
};

std::vector<Step> visits_of(uint32_t modules) {
  std::vector<Step> steps;
  const auto layers = *rc::gen::resize(6, rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange(0U, modules)));
  const bool recompute = *rc::gen::inRange(0, 3) == 0;
  const bool backward = *rc::gen::inRange(0, 5) != 0;
  for (const uint32_t layer : layers) {
    steps.push_back({layer, true, false, false});
    steps.push_back({layer, false, false, false});
  }
  for (auto layer = layers.rbegin(); backward && layer != layers.rend(); ++layer) {
    steps.push_back({*layer, true, true, false});
    if (recompute) {
      steps.push_back({*layer, true, false, true});
      steps.push_back({*layer, false, false, true});
    }
    steps.push_back({*layer, false, true, false});
  }
  return steps;
}

/// A schedule that always decides beside one that may copy.
class Both {
 public:
  Both(const sdk::Model& model, const ScheduleOptions& options)
      : decided_(model, options), copied_(Schedule(model, options)) {}
  /// False when both refuse.
  template <class Call>
  bool say_the_same(const Call& call) {
    const std::optional<Said> expected = said_by(decided_, call);
    RC_ASSERT(said_by(copied_, call) == expected);
    return expected.has_value();
  }

 private:
  Schedule decided_;
  Cycle copied_;
};

bool passes_are_the_same(Both& both, const sdk::Model& model) {
  const auto modules = static_cast<uint32_t>(model.modules.size());
  std::vector<Step> steps = visits_of(modules);
  for (int pass = 0; pass < 14; ++pass) {
    if (*rc::gen::inRange(0, 8) == 0) steps = visits_of(modules);
    const bool cut = *rc::gen::inRange(0, 8) == 0;
    const size_t end = cut ? steps.size() / 2 : steps.size();
    if (!both.say_the_same([&](auto& one, sdk::Actions& actions) { one.begin_pass(true, actions); })) return false;
    for (size_t i = 0; i < end; ++i) {
      const sdk::Visit visit{steps[i].module, steps[i].backward, steps[i].recompute, {}};
      const auto call = [&](auto& one, sdk::Actions& actions) {
        steps[i].enters ? one.enter(visit, actions) : one.leave(visit, actions);
      };
      if (!both.say_the_same(call)) return false;
    }
    if (!both.say_the_same([](auto& one, sdk::Actions& actions) { one.end_pass(actions); })) return false;
    const int between = *rc::gen::inRange(0, 12);
    const auto call = [&](auto& one, sdk::Actions& actions) {
      if (between == 0) one.release_all(actions);
      if (between == 1) one.drop_trace(actions);
      if (between == 2) one.set_parameters(modules - 1, {}, {});
    };
    if (!both.say_the_same(call)) return false;
  }
  return true;
}

TEST_CASE("what is copied from the record of a pass is what would be decided") {
  const bool held = rc::check([] {
    const sdk::Model model = model_of_layers();
    ScheduleOptions options;
    options.prefetch_bucket = *rc::gen::element<int64_t>(0, 10, 40, 100000);
    options.max_live = *rc::gen::element<int64_t>(0, 30, 100, 100000);
    options.max_reuse_distance = *rc::gen::element<int64_t>(0, 25, 100000);
    options.head = *rc::gen::arbitrary<bool>();
    options.strict = *rc::gen::arbitrary<bool>();
    options.swap_buffers = *rc::gen::element<int64_t>(-1, -1, 2);
    Both both(model, options);
    RC_CLASSIFY(passes_are_the_same(both, model), "to the end");
  });
  CHECK(held);
}

TEST_CASE("steps of one pass and of many are copied once they are alike, whatever stays whole between their passes") {
  for (const int passes : {1, 2, 3, 16, 17}) {
    for (const int64_t distance : {int64_t{0}, int64_t{100000}}) {
      CAPTURE(passes);
      CAPTURE(distance);
      ScheduleOptions options;
      options.prefetch_bucket = 40;
      options.max_live = 100000;
      options.max_reuse_distance = distance;
      options.head = true;
      sdk::Model model = test::layered({{10, 20}, {30}, {40}});
      model.parameters.front().persistent = true;
      Cycle cycle(Schedule(model, options));
      std::vector<pliant_action> room(4096);
      const auto call = [&](const auto& asked) {
        pliant_action_list list{sizeof(list), 0, room.size(), 0, room.data()};
        sdk::Actions actions(list);
        asked(actions);
      };
      bool copied = false;
      for (int step = 0; step < 12; ++step) {
        copied = true;
        for (int pass = 0; pass < passes; ++pass) {
          call([&](sdk::Actions& actions) { cycle.begin_pass(true, actions); });
          for (const bool backward : {false, true}) {
            for (const uint32_t layer : {1U, 2U, 3U}) {
              const uint32_t module = backward ? 4 - layer : layer;
              call([&](sdk::Actions& actions) { cycle.enter({module, backward, false, {}}, actions); });
              copied = copied && cycle.copies();
              call([&](sdk::Actions& actions) { cycle.leave({module, backward, false, {}}, actions); });
            }
          }
          call([&](sdk::Actions& actions) { cycle.end_pass(actions); });
        }
        call([&](sdk::Actions& actions) { cycle.release_all(actions); });
      }
      CHECK(copied == (passes <= 16));
    }
  }
}

}  // namespace
}  // namespace pliant::coordinator::zero3
