// Why visits waited, in traces that are made so that it is known.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "sharded/trace/trace_waits.hpp"
#include "unit/sharded/hand_made_trace.hpp"
#include "unit/sharded/says.hpp"

namespace pliant::sharded {
namespace {

const std::vector<int64_t> kLayers{1000, 1000, 1000};  // 4096 bytes of an arena each

CausedWait only_wait(const HandMadeTrace& made) {
  const std::vector<CausedWait> waits = caused_waits(made.trace, made.trace.ranks.size() - 1);
  REQUIRE(waits.size() == 1);
  return waits.front();
}

/// A step in whose order nothing is new afterwards, and that gathers ahead.
HandMadeTrace after_a_step(uint64_t budget = 0) {
  HandMadeTrace made(kLayers, budget);
  made.pass({1, 2, 3});
  made.gather(1, 0, 0, 1, true);
  made.end_step();
  made.call(TracedCall::Kind::kBeginPass);
  return made;
}

/// Layers 0 to 2 are entered one after the other; the third waits 2 ms for a gather that leaving the first one
/// enqueued, and that began then.
struct LateGather {
  size_t enqueued = 0;
  size_t entered = 0;

  LateGather(HandMadeTrace& made, std::vector<pliant_action> actions, uint64_t live_before, double starts_late = 0) {
    made.enter(1, Direction::kForward, {}, live_before);
    enqueued = made.leave(1, Direction::kForward, std::move(actions), live_before);
    made.visit(2);
    entered = made.enter(3);
    const double began = made.calls()[enqueued].ended + starts_late;
    const double ended = made.calls()[entered].began + 2000;
    made.gather(enqueued, 2, began, ended, true);
    made.wait(entered, 2, made.calls()[entered].began, ended);
  }
};

}  // namespace

TEST_CASE("a visit of an order that is new waits by demand") {
  HandMadeTrace made(kLayers);
  made.call(TracedCall::Kind::kBeginPass);
  const size_t entered = made.enter(2);
  made.gather(entered, 1, 0, 3100);
  made.wait(entered, 1, 0, 3100);
  const CausedWait wait = only_wait(made);
  CHECK(wait.cause == WaitCause::kNoTrace);
  CHECK(wait.call == entered);
  CHECK(wait.microseconds == doctest::Approx(3100));
  CHECK(sentence_of(made.trace, 0, wait) ==
        "layers.1 began 3.1 ms late: gathered on demand: no trace of this order yet");
}

TEST_CASE("a pass that goes another way than those before says where it left them") {
  HandMadeTrace made = after_a_step();
  made.visit(1);
  made.visit(3);  // 2 was expected
  const size_t entered = made.enter(2, Direction::kBackward);
  made.gather(entered, 1, made.now, made.now + 400);
  made.wait(entered, 1, made.now, made.now + 400);
  const CausedWait wait = only_wait(made);
  CHECK(wait.cause == WaitCause::kLeftTrace);
  CHECK(sentence_of(made.trace, 0, wait) ==
        "layers.1 (backward) began 0.40 ms late: gathered on demand: the pass left its trace at layers.2");
}

TEST_CASE("passes with gradients and the others have traces of their own") {
  HandMadeTrace made(kLayers);
  made.pass({1, 2, 3});
  made.gather(1, 0, 0, 1, true);
  made.call(TracedCall::Kind::kBeginEvaluation);
  const size_t entered = made.enter(1);
  made.gather(entered, 0, made.now, made.now + 10);
  made.wait(entered, 0, made.now, made.now + 10);
  CHECK(only_wait(made).cause == WaitCause::kNoTrace);
}

TEST_CASE("where the order is known and nothing is gathered ahead, the coordinator is named") {
  HandMadeTrace made(kLayers);
  made.trace.coordinator = "eager";
  made.pass({1});
  made.pass({1});
  made.call(TracedCall::Kind::kBeginPass);
  const size_t entered = made.enter(1);
  made.gather(entered, 0, made.now, made.now + 10);
  made.wait(entered, 0, made.now, made.now + 10);
  CHECK(only_wait(made).cause == WaitCause::kOnDemand);
  CHECK(says(only_wait(made).why, "eager does not prefetch"));
  made.gather(entered, 1, made.now, made.now + 10, true);  // but it does
  CHECK(only_wait(made).cause == WaitCause::kOnDemand);
  CHECK(says(only_wait(made).why, "although the order was known"));
}

TEST_CASE("a gather that begins once something is released was kept out by the budget, where it did not fit before") {
  HandMadeTrace full = after_a_step(9000);
  const LateGather late(full, {releases(0), gathers(2, true)}, 2 * 4096);
  const CausedWait wait = only_wait(full);
  CHECK(wait.cause == WaitCause::kBudgetFull);
  CHECK(wait.call == late.entered);
  CHECK(sentence_of(full.trace, 0, wait) == "layers.2 began 2.0 ms late: budget full until layers.0 was released");

  HandMadeTrace roomy = after_a_step(3 * 4096);
  LateGather(roomy, {releases(0), gathers(2, true)}, 2 * 4096);
  CHECK(only_wait(roomy).cause == WaitCause::kTransfer);
  HandMadeTrace afterwards = after_a_step(9000);
  LateGather(afterwards, {gathers(2, true), releases(0)}, 2 * 4096);
  CHECK(only_wait(afterwards).cause == WaitCause::kTransfer);
  HandMadeTrace unlimited = after_a_step();
  LateGather(unlimited, {releases(0), gathers(2, true)}, 2 * 4096);
  CHECK(only_wait(unlimited).cause == WaitCause::kTransfer);
}

TEST_CASE("what is released as another module is entered is named by the module that has it") {
  HandMadeTrace made = after_a_step(9000);
  made.visit(1);
  made.enter(2, Direction::kForward, {}, 2 * 4096);
  const size_t entered = made.enter(3, Direction::kForward, {releases(1), gathers(2)});
  made.gather(entered, 2, made.now, made.now + 100);
  made.wait(entered, 2, made.now, made.now + 100);
  const CausedWait wait = only_wait(made);
  CHECK(wait.cause == WaitCause::kBudgetFull);
  CHECK(says(wait.why, "budget full until layers.1 was released"));
}

TEST_CASE("a gather that stood behind others names the longest of them") {
  HandMadeTrace made = after_a_step();
  const double now = made.now;
  made.reduce(0, 1, now, now + 1500);
  made.reduce(0, 0, now + 1500, now + 1600);
  LateGather(made, {gathers(2, true)}, 0, 1600);
  const CausedWait wait = only_wait(made);
  CHECK(wait.cause == WaitCause::kExchangeBusy);
  CHECK(says(wait.why, "exchange busy for 1.6 ms, longest with the sum of gradients of layers.1"));
}

TEST_CASE("what stood before a gather matters only where it made most of the wait") {
  HandMadeTrace made = after_a_step();
  made.reduce(0, 1, made.now, made.now + 300);
  LateGather(made, {gathers(2, true)}, 0, 300);
  const CausedWait wait = only_wait(made);
  CHECK(wait.cause == WaitCause::kTransfer);
  CHECK(says(wait.why, "its gather took "));
}

TEST_CASE("a gather that did not begin although nothing was exchanged stood behind the program") {
  HandMadeTrace made = after_a_step();
  LateGather(made, {gathers(2, true)}, 0, 1900);
  CHECK(only_wait(made).cause == WaitCause::kAfterProgram);
}

TEST_CASE("a rank that comes to a gather later is named") {
  HandMadeTrace late(kLayers);
  late.call(TracedCall::Kind::kBeginPass);
  const size_t there = late.enter(1);
  late.gather(there, 0, 2500, 3000);
  late.rank().rank = 1;
  HandMadeTrace made(kLayers);
  made.call(TracedCall::Kind::kBeginPass);
  const size_t entered = made.enter(1);
  made.gather(entered, 0, 10, 3000);
  made.wait(entered, 0, 10, 3000);
  made.trace.ranks.insert(made.trace.ranks.begin(), late.rank());
  CHECK(only_wait(made).cause == WaitCause::kOtherRank);
  CHECK(says(only_wait(made).why, "rank 1 reached the gather 2.5 ms later than this one"));

  const TracedRank kept = made.trace.ranks.front();
  TracedRank& other = made.trace.ranks.front();
  other.transfers.front().began = 3001;  // another clock, or another gather
  CHECK(only_wait(made).cause == WaitCause::kNoTrace);
  other = kept;
  other.transfers.front().parameters = {1};
  CHECK(only_wait(made).cause == WaitCause::kNoTrace);
  other = kept;
  other.generation = 1;
  CHECK(only_wait(made).cause == WaitCause::kNoTrace);
  other = kept;
  other.transfers.front().began = 800;
  CHECK(only_wait(made).cause == WaitCause::kNoTrace);
  other.transfers.clear();  // it died
  CHECK(only_wait(made).cause == WaitCause::kNoTrace);
}

TEST_CASE("what waits for gradients says whose, or which rank was later, and which call it was") {
  HandMadeTrace made = after_a_step();
  made.visit(1);
  const size_t sent = made.leave(1, Direction::kBackward);
  const size_t ended = made.call(TracedCall::Kind::kEndPass);
  made.reduce(sent, 0, made.now, made.now + 1500);
  made.wait(ended, 0, made.now, made.now + 1500, TracedTransfer::Kind::kReduce);
  CHECK(only_wait(made).cause == WaitCause::kGradients);
  CHECK(sentence_of(made.trace, 0, only_wait(made)) ==
        "the pass ended 1.5 ms late: gradients of layers.0 were being sent");
  TracedRank late = made.rank();
  late.rank = 4;
  late.transfers.back().began += 1200;
  made.trace.ranks.insert(made.trace.ranks.begin(), late);
  CHECK(only_wait(made).cause == WaitCause::kOtherRank);
  CHECK(says(only_wait(made).why, "rank 4 reached the sum of gradients 1.2 ms later"));
}

TEST_CASE("waits of one visit are one, with the cause of the longest, and what took no time is none") {
  HandMadeTrace made = after_a_step(9000);
  const LateGather late(made, {releases(0), gathers(2, true)}, 2 * 4096);
  made.wait(late.entered, 0, made.now, made.now + 30);
  made.visit(1);
  made.wait(made.calls().size() - 2, 0, made.now, made.now);
  const CausedWait wait = only_wait(made);
  CHECK(wait.parameters == std::vector<uint32_t>{2, 0});
  CHECK(wait.microseconds == doctest::Approx(2030));
  CHECK(wait.cause == WaitCause::kBudgetFull);
}

TEST_CASE("a wait for what the trace does not see gathered says so") {
  HandMadeTrace made(kLayers);
  made.call(TracedCall::Kind::kBeginPass);
  made.wait(made.enter(1), 0, 0, 10);
  CHECK(only_wait(made).cause == WaitCause::kNotRecorded);
}

}  // namespace pliant::sharded
