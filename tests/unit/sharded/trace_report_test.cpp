// What a report counts of each step.
#include <doctest/doctest.h>

#include "sharded/trace/trace_report.hpp"
#include "unit/sharded/hand_made_trace.hpp"

namespace pliant::sharded {
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

TEST_CASE("what is fetched and read by hand is counted apart, and transfers and waits are put in turn") {
  HandMadeTrace made({100, 50});
  made.pass({1, 2});
  const size_t by_hand = made.call(TracedCall::Kind::kByHand, {}, Direction::kForward, {gathers(1)});
  made.rank().calls.back().most_bytes = 900;
  made.gather(by_hand, 1, 60, 70);
  made.gather(1, 0, 10, 20);
  made.wait(by_hand, 1, 60, 70);
  made.wait(1, 0, 11, 20);
  made.end_step();
  const TraceFile trace = in_turn(made.trace);
  CHECK(trace.ranks.front().transfers.front().call == 1);
  CHECK(trace.ranks.front().waits.front().call == 1);
  const ReportedStep step = report_of(trace).steps.front();
  CHECK(step.gathered == 400);
  CHECK(step.by_hand == 200);
  CHECK(step.peak == 900);
  CHECK(step.waits == 2);
}

}  // namespace pliant::sharded
