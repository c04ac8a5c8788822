// What a report counts of each step, and what it does not take for a trace.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "pliant/error.hpp"
#include "sharded/trace_report.hpp"
#include "unit/sharded/hand_made_trace.hpp"
#include "unit/sharded/says.hpp"

namespace pliant::sharded {
namespace {

std::string damage_of(const TraceFile& trace) {
  try {
    require_sound(trace);
  } catch (const Error& error) {
    return error.message();
  }
  return "sound";
}

}  // namespace

TEST_CASE("bytes, exchange, waits and peak are counted by step") {
  HandMadeTrace made({100, 50}, 4096);
  for (int step = 0; step < 4; ++step) {
    const size_t begin = made.calls().size();
    const double now = made.now;
    made.pass({1, 2});
    made.call(TracedCall::Kind::kEndStep);
    made.rank().calls[begin + 3].live_bytes = 700;
    const double end_pass = made.calls()[begin + 9].began;
    made.gather(begin + 1, 0, now + 11, now + 15, true);
    made.gather(begin + 2, 1, now + 15, now + 20);
    made.wait(begin + 3, 1, now + 18, now + 22);
    made.reduce(begin + 8, 1, end_pass - 2, end_pass + 1);
    ++made.step;
  }
  require_sound(made.trace);
  const TraceReport report = report_of(made.trace);
  REQUIRE(report.steps.size() == 4);
  for (const ReportedStep& step : report.steps) {
    CHECK(step.of == 0);
    CHECK(step.is_whole);
    CHECK(step.learns == (step.step < 2));
    CHECK(step.passes == 1);
    CHECK(step.evaluations == 0);
    CHECK(step.gathered == 600);
    CHECK(step.ahead == 400);
    CHECK(step.reduced == 200);
    CHECK(step.least.with_room == 600);
    CHECK(step.least.at_budget == 600);
    CHECK(step.peak == 700);
    CHECK(step.exchange == doctest::Approx(9 + 3));
    CHECK(step.exposed == doctest::Approx(2 + 1));
    CHECK(step.hidden() == doctest::Approx(0.75));
    CHECK(step.waits == 1);
    CHECK(step.waited == doctest::Approx(4));
  }
  CHECK(report.waits.size() == 4);
  CHECK(report.waits[2].step == 2);
}

TEST_CASE("a step with an order that is new learns, and one that was cut off is not whole") {
  HandMadeTrace made({100, 50});
  for (int step = 0; step < 3; ++step) {
    made.pass({1, 2});
    made.end_step();
  }
  made.pass({2, 1});
  made.end_step();
  made.pass({2, 1});
  made.end_step();
  made.call(TracedCall::Kind::kBeginPass);
  made.enter(1);  // killed
  made.trace.ranks.emplace_back();
  made.rank().generation = 1;
  made.pass({1, 2});
  made.trace.ranks.emplace_back();  // nothing was recorded of this one
  const std::vector<ReportedStep> steps = report_of(made.trace).steps;
  REQUIRE(steps.size() == 7);
  CHECK(!steps[2].learns);
  CHECK(steps[3].learns);
  CHECK(!steps[4].learns);
  CHECK(!steps[5].is_whole);
  CHECK(steps[6].of == 1);
  CHECK(!steps[6].is_whole);
  CHECK(steps[6].learns);
  CHECK(steps[5].hidden() == 1);
}

TEST_CASE("a trace without a model, or whose numbers name nothing, is refused with the place") {
  HandMadeTrace made({100, 50});
  made.pass({1, 2});
  made.gather(1, 0, 0, 1);
  made.wait(1, 0, 0, 1);
  const TraceFile whole = made.trace;
  CHECK(damage_of(whole) == "sound");
  TraceFile damaged = whole;
  damaged.model.reset();
  CHECK(says(damage_of(damaged), "a job that is not sharded"));
  damaged = whole;
  damaged.ranks.front().calls[1].module = 9;
  CHECK(says(damage_of(damaged), "call 1 of rank 0 in generation 0 is about a module that the model has not"));
  damaged = whole;
  damaged.ranks.front().calls[1].module.reset();
  CHECK(says(damage_of(damaged), "call 1 "));
  damaged = whole;
  damaged.ranks.front().calls[2].actions = {gathers(8)};
  CHECK(says(damage_of(damaged), "call 2 of rank 0 in generation 0 was answered with an action on a parameter"));
  damaged.ranks.front().calls[2].actions = {{PLIANT_ACTION_DROP_TRACE, PLIANT_NO_PARAMETER, 0, 0, 0}};
  CHECK(damage_of(damaged) == "sound");
  damaged = whole;
  damaged.ranks.front().transfers[0].parameters = {2};
  CHECK(says(damage_of(damaged), "transfer 0 of rank 0 in generation 0 moves a parameter that the model has not"));
  damaged = whole;
  damaged.ranks.front().transfers[0].parameters.clear();
  CHECK(says(damage_of(damaged), "moves no parameter"));
  damaged = whole;
  damaged.ranks.front().transfers[0].call = 100;
  CHECK(says(damage_of(damaged), "transfer 0 of rank 0 in generation 0 is of a call that is not there"));
  damaged = whole;
  damaged.ranks.front().waits[0].call = 2;
  CHECK(says(damage_of(damaged), "wait 0 of rank 0 in generation 0 is of a call that enters nothing"));
  damaged = whole;
  damaged.ranks.front().waits[0].parameter = 7;
  CHECK(says(damage_of(damaged), "wait 0 "));
}

}  // namespace pliant::sharded
