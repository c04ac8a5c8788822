// Streams that are busy for as long as they are told.
#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/order_work.hpp"
#include "testkit/gate.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

constexpr uint64_t kMs = 1000000;

/// Skips the check where streams cannot.
void spend(const Accelerator& accelerator, uint64_t nanoseconds, const Stream& stream) {
  if (accelerator.slots().spend_async == nullptr) skip("it lacks the optional spend_async");
  const Outcome outcome = accelerator.call(&Slots::spend_async, nanoseconds, stream);
  if (outcome.status == PLIANT_UNIMPLEMENTED) skip(outcome.message);
  must("spend_async", outcome);
}

/// By the device's clock.
double seconds_between(const Accelerator& accelerator, const Event& begin, const Event& end) {
  begin.wait();
  end.wait();
  double seconds = -1;
  must("event_elapsed", accelerator.call(&Slots::event_elapsed, begin, end, &seconds));
  return seconds;
}

/// Twice, so that the second does not count from when it was enqueued.
void spent_as_long(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  constexpr uint64_t kLength = 20 * kMs;
  constexpr double kSeconds = kLength * 1e-9;
  constexpr double kClock = 1e-6;  // what a clock may round away
  const Event begin(accelerator, PLIANT_EVENT_TIMING);
  const Event middle(accelerator, PLIANT_EVENT_TIMING);
  const Event end(accelerator, PLIANT_EVENT_TIMING);
  begin.record(stream);
  spend(accelerator, kLength, stream);
  middle.record(stream);
  spend(accelerator, 0, stream);
  spend(accelerator, kLength, stream);
  end.record(stream);
  stream.wait();
  for (const double seconds :
       {seconds_between(accelerator, begin, middle), seconds_between(accelerator, middle, end)}) {
    const std::string what = "a stream kept busy for " + std::to_string(kSeconds) + " s was busy for " +
                             std::to_string(seconds) + " s by the device's clock";
    expect(seconds >= kSeconds - kClock, what);
    if (seconds > 5 * kSeconds) warn(what);
  }
}

void spent_in_order(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream held(accelerator);
  const Memory memory(accelerator, kOrderBytes);
  {
    Gate gate;
    gate.hold(accelerator, held);
    fill(accelerator, memory, 1, held);
    returns_soon("spend_async on a blocked stream", [&] { spend(accelerator, 20 * kMs, held); });
    fill(accelerator, memory, 2, held);
    expect(!held.done(), "stream_query reports a stream as done while a host function on it waits");
  }
  held.wait();
  expect(first_byte(accelerator, memory) == 2, "work after spend_async does not run");
}

/// Seconds that a fill on a stream for gathers ends after a stream for computations has begun to spend 200 ms.
double spent_beside_once(const Accelerator& accelerator, double& spent) {
  const Stream computes(accelerator);
  const Stream gathers(accelerator, 0, PLIANT_STREAM_GATHER);
  const Memory memory(accelerator, kOrderBytes);
  const Event begin(accelerator, PLIANT_EVENT_TIMING);
  const Event end(accelerator, PLIANT_EVENT_TIMING);
  const Event filled(accelerator, PLIANT_EVENT_TIMING);
  begin.record(computes);
  must("stream_wait_event", accelerator.call(&Slots::stream_wait_event, gathers, begin));
  spend(accelerator, 200 * kMs, computes);
  end.record(computes);
  fill(accelerator, memory, 1, gathers);
  filled.record(gathers);
  spent = seconds_between(accelerator, begin, end);
  return seconds_between(accelerator, begin, filled);
}

/// A machine that is busy may keep the other stream waiting; of several times it will not.
void spent_beside(const Subject& subject) {
  const Accelerator accelerator(subject);
  double spent = 0;
  double filled = 0;
  for (int i = 0; i < 4; ++i) {
    filled = spent_beside_once(accelerator, spent);
    if (filled < spent / 2) return;
  }
  fail("a fill on a stream for gathers ends " + std::to_string(filled) +
       " s after a stream for computations begins to " + "be busy for " + std::to_string(spent) +
       " s: it does not run meanwhile");
}

void spend_refused(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  spend(accelerator, 0, stream);  // skips where it cannot
  const auto refusal = [&](uint64_t nanoseconds, pliant_stream* on) {
    return accelerator.call(&Slots::spend_async, nanoseconds, on).status;
  };
  expect(refusal(1000000000001, stream) == PLIANT_INVALID_ARGUMENT,
         "more than 10^12 nanoseconds at once are not refused as PLIANT_INVALID_ARGUMENT");
  expect(refusal(1, nullptr) == PLIANT_INVALID_ARGUMENT,
         "spend_async on a NULL stream is not refused as PLIANT_INVALID_ARGUMENT");
  returns_soon("a stream after a refused spend_async", [&] { stream.wait(); });
}

}  // namespace

std::vector<Check> spend_checks() {
  return {
      {"spend.length", "spend_async keeps a stream busy for the given time, counted from its turn on the stream",
       spent_as_long},
      {"spend.order", "spend_async returns at once, and later work waits and then runs", spent_in_order},
      {"spend.beside", "streams of other roles run while a stream is busy", spent_beside},
      {"spend.refused", "a NULL stream and more than 10^12 nanoseconds are refused", spend_refused},
  };
}

}  // namespace pliant::testkit
