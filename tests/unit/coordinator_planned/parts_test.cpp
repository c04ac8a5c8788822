// The parts of a planner: traces, what follows what, uses to come, room.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <numeric>

#include "room.hpp"
#include "traces.hpp"
#include "trainer.hpp"
#include "uses.hpp"

using namespace pliant::coordinator::planned;
using namespace pliant::coordinator::planned::test;

namespace {

std::shared_ptr<const Trace> trace_of(const std::vector<Call>& calls, bool with_gradient = true) {
  Trace trace{with_gradient, calls, {}};
  RollingDigest digest(with_gradient);
  for (const Call call : calls) {
    digest.add(call);
    trace.digests.push_back(digest.value());
  }
  return std::make_shared<const Trace>(std::move(trace));
}

std::vector<Call> visits_of(const std::vector<uint32_t>& modules) {
  std::vector<Call> calls;
  for (const uint32_t module : modules) {
    calls.push_back(call_of({module, false, false, {}}, false));
    calls.push_back(call_of({module, false, false, {}}, true));
  }
  return calls;
}

}  // namespace

TEST_CASE("the next use is that of the next enter, in this pass or the one after it") {
  CHECK(rc::check([] {
    const Layout layout(layers_of(std::vector<uint64_t>(5, 256), 0));
    const auto modules = rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange<uint32_t>(1, 6));
    const auto trace = trace_of(visits_of(*modules));
    const auto after = trace_of(visits_of(*modules));
    const Uses uses(layout, trace, after);
    const auto slowly = [&](uint32_t parameter, Moment from) -> Moment {
      for (Moment at = from; at < uses.end(); ++at) {
        if (!leaves(uses.call(at)) && module_of(uses.call(at)) == parameter + 1) return at;
      }
      return kNever;
    };
    const auto from = *rc::gen::inRange<Moment>(0, uses.end() + 1);
    const std::vector<Moment> first = uses.first_from(layout, from);
    for (uint32_t parameter = 0; parameter < 5; ++parameter) {
      RC_ASSERT(uses.first(parameter) == slowly(parameter, 0));
      RC_ASSERT(first[parameter] == slowly(parameter, from));
    }
    for (size_t at = 0; at < trace->calls.size(); at += 2) {
      RC_ASSERT(uses.next(at, 0) == slowly(module_of(trace->calls[at]) - 1, at + 1));
    }
  }));
}

TEST_CASE("a set keeps the traces that were used last, and finds one by what it begins with") {
  TraceSet traces(2);
  const TraceId one = traces.add(*trace_of(visits_of({1, 2, 3})));
  const TraceId two = traces.add(*trace_of(visits_of({1, 2, 4})));
  CHECK(traces.add(*trace_of(visits_of({1, 2, 3}))) == one);
  const auto prefix = trace_of(visits_of({1, 2}));
  CHECK(traces.with_prefix(true, 4, prefix->digests.back()) == one);  // used last
  CHECK(traces.with_prefix(false, 4, prefix->digests.back()) == kNoTrace);
  const TraceId three = traces.add(*trace_of(visits_of({5})));
  CHECK(three != two);
  CHECK(traces.find(two) == nullptr);
  CHECK(traces.find(one) != nullptr);
  CHECK(traces.with_prefix(true, 4, 17) == kNoTrace);
}

TEST_CASE("what follows is told by the longest end of what came that is known") {
  Succession succession;
  for (int round = 0; round < 3; ++round) {
    for (const TraceId id : {1U, 1U, 2U, Succession::kStepEnd}) succession.learn(id, TraceSet());
  }
  CHECK(succession.next() == 1);
  succession.learn(1, TraceSet());
  CHECK(succession.next() == 1);
  CHECK(succession.next(1) == 2);
  succession.learn(1, TraceSet());
  CHECK(succession.next() == 2);
  CHECK(succession.next(2) == Succession::kStepEnd);
}

TEST_CASE("room is never given twice, and what is found fits") {
  CHECK(rc::check([] {
    const uint64_t budget = 16;
    std::vector<uint64_t> bytes;
    for (int i = 0; i < 12; ++i) bytes.push_back(256 * *rc::gen::inRange<uint64_t>(1, 5));
    const Layout layout(layers_of(bytes, budget * 256));
    Room room(layout);
    const std::vector<uint64_t> costs(bytes);
    for (int i = 0; i < 60; ++i) {
      const auto parameter = *rc::gen::inRange<uint32_t>(0, 12);
      if (room.at(parameter).whole) {
        if (*rc::gen::inRange(0, 3) == 0) room.drop(parameter);
        continue;
      }
      room.set_next(parameter, *rc::gen::inRange<Moment>(1, 100));
      const Moment until = *rc::gen::inRange<Moment>(0, 100);
      const auto spot = room.find({bytes[parameter], budget * 256, 0, until, true}, costs);
      if (!spot) continue;
      for (const uint32_t other : spot->goes) {
        RC_ASSERT(room.at(other).next > until);
        room.drop(other);
      }
      RC_ASSERT(spot->place + bytes[parameter] <= budget * 256);
      for (uint32_t other = 0; other < 12; ++other) {
        const Room::Held& one = room.at(other);
        RC_ASSERT(!one.whole || one.place >= spot->place + bytes[parameter] || one.place + one.bytes <= spot->place);
      }
      room.take(parameter, spot->place, bytes[parameter]);
    }
  }));
}
