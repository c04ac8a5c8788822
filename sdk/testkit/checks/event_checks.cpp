// Events: what waits for what, and what the plugin says about it.
#include <thread>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/order_work.hpp"
#include "testkit/gate.hpp"
#include "testkit/process.hpp"

namespace pliant::testkit {

namespace {
using Slots = pliant_accelerator;
}

void fill(const Accelerator& accelerator, const Memory& to, int32_t value, const Stream& stream, uint64_t bytes) {
  must("fill_async", accelerator.call(&Slots::fill_async, static_cast<void*>(to.at()), value, bytes, stream));
}

void let_run(const Accelerator& accelerator) {
  const Stream other(accelerator);
  const Memory memory(accelerator, 1U << 20U);
  for (int i = 0; i < 30; ++i) fill(accelerator, memory, i, other, 1U << 20U);
  other.wait();
}

unsigned char first_byte(const Accelerator& accelerator, const Memory& memory) {
  unsigned char byte = 0;
  accelerator.read(&byte, memory.at(), 1);
  return byte;
}

namespace {

void wait_event_once(const Accelerator& accelerator) {
  const Memory memory(accelerator, kOrderBytes);
  const Stream first(accelerator);
  const Stream second(accelerator);
  const Event event(accelerator);
  fill(accelerator, memory, 0, first);
  first.wait();
  Gate gate;
  gate.hold(accelerator, first);
  fill(accelerator, memory, 1, first);
  event.record(first);
  must("stream_wait_event", accelerator.call(&Slots::stream_wait_event, second, event));
  fill(accelerator, memory, 2, second);
  let_run(accelerator);
  expect(!second.done(), "a stream that waits for an event is done before the event was reached");
  gate.open();
  second.wait();
  expect(first_byte(accelerator, memory) == 2, "a stream that waited for an event ran before what was recorded");
}

/// A stream that may run need not have run yet; of several times it will have.
void wait_event(const Subject& subject) {
  const Accelerator accelerator(subject);
  for (int i = 0; i < 10; ++i) wait_event_once(accelerator);
}

void recorded_by_now_once(const Accelerator& accelerator) {
  const Memory memory(accelerator, kOrderBytes);
  const Stream held(accelerator);
  const Stream idle(accelerator);
  const Stream waits(accelerator);
  const Event event(accelerator);
  event.record(idle);
  idle.wait();
  must("stream_wait_event", accelerator.call(&Slots::stream_wait_event, waits, event));
  Gate gate;
  gate.hold(accelerator, held);
  event.record(held);
  returns_soon("a stream that waits for an event as it was recorded before, and not for a later recording,",
               [&] { waits.wait(); });
  must("stream_wait_event", accelerator.call(&Slots::stream_wait_event, waits, event));
  event.record(idle);
  idle.wait();
  fill(accelerator, memory, 1, waits);
  let_run(accelerator);
  expect(!waits.done(), "recording an event again released a stream that waits for the earlier recording");
  gate.open();
  waits.wait();
}

/// A stream that may run need not have run yet; of several times it will have.
void recorded_by_now(const Subject& subject) {
  const Accelerator accelerator(subject);
  for (int i = 0; i < 10; ++i) recorded_by_now_once(accelerator);
}

void never_recorded(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  const Event event(accelerator);
  expect(event.done(), "event_query reports an event that was never recorded as not done");
  returns_soon("event_synchronize on an event that was never recorded", [&] { event.wait(); });
  must("stream_wait_event", accelerator.call(&Slots::stream_wait_event, stream, event));
  returns_soon("a stream that waits for an event that was never recorded", [&] { stream.wait(); });
}

void event_query(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  const Event event(accelerator);
  Gate gate;
  gate.hold(accelerator, stream);
  event.record(stream);
  for (int i = 0; i < 20; ++i) {
    expect(!event.done(), "event_query reports an event as done while work before it waits");
  }
  gate.open();
  stream.wait();
  expect(event.done(), "event_query reports an event as not done after its stream was synchronized");
}

void elapsed(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Memory memory(accelerator, 1U << 20U);
  const Stream stream(accelerator);
  const Event begin(accelerator, PLIANT_EVENT_TIMING);
  const Event middle(accelerator, PLIANT_EVENT_TIMING);
  const Event end(accelerator, PLIANT_EVENT_TIMING);
  begin.record(stream);
  for (int i = 0; i < 20; ++i) fill(accelerator, memory, i, stream, 1U << 20U);
  middle.record(stream);
  for (int i = 0; i < 20; ++i) fill(accelerator, memory, i, stream, 1U << 20U);
  end.record(stream);
  stream.wait();
  const auto between = [&](const Event& from, const Event& to) {
    double seconds = -1;
    must("event_elapsed", accelerator.call(&Slots::event_elapsed, from, to, &seconds));
    expect(seconds >= 0 && seconds < 600, "event_elapsed returns " + std::to_string(seconds) + " seconds");
    return seconds;
  };
  const double parts = between(begin, middle) + between(middle, end);
  const double whole = between(begin, end);
  // The clock may be a coarse one.
  expect(parts <= whole * 1.01 + 1e-5 && whole <= parts * 1.01 + 1e-5,
         "two parts of the time make " + std::to_string(parts) + " seconds, the whole " + std::to_string(whole));
  expect(between(begin, begin) == 0, "the time from an event to itself is not 0");
}

/// A host function between two events takes 20 ms. A device may have a clock of its own, so this is no more than a
/// warning; it finds the wrong unit.
void elapsed_seconds(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  const Event begin(accelerator, PLIANT_EVENT_TIMING);
  const Event end(accelerator, PLIANT_EVENT_TIMING);
  void (*const function)(void*) = [](void*) {
    const int64_t until_ns = now_ns() + 20000000;
    while (now_ns() < until_ns) std::this_thread::yield();
  };
  void* const nothing = nullptr;
  const int64_t before_ns = now_ns();
  begin.record(stream);
  must("host_function", accelerator.call(&Slots::host_function, function, nothing, stream));
  end.record(stream);
  stream.wait();
  const double most = static_cast<double>(now_ns() - before_ns) * 1e-9;
  double seconds = -1;
  must("event_elapsed", accelerator.call(&Slots::event_elapsed, begin, end, &seconds));
  if (seconds >= 0.018 && seconds <= most * 1.1 + 1e-3) return;
  warn("event_elapsed returns " + std::to_string(seconds) + " seconds between two events with 0.02 seconds of work " +
       "between them, of " + std::to_string(most) + " in all; is it in seconds?");
}

void elapsed_refused(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  const Event timed(accelerator, PLIANT_EVENT_TIMING);
  const Event untimed(accelerator);
  const Event unreached(accelerator, PLIANT_EVENT_TIMING);
  timed.record(stream);
  untimed.record(stream);
  stream.wait();
  Gate gate;
  gate.hold(accelerator, stream);
  unreached.record(stream);
  const auto refused = [&](const char* what, const Event& from, const Event& to) {
    double seconds = 0;
    const Outcome answer = accelerator.call(&Slots::event_elapsed, from, to, &seconds);
    expect(answer.status == PLIANT_FAILED_PRECONDITION,
           std::string("event_elapsed ") + what + " returned " + answer.text() + ", not PLIANT_FAILED_PRECONDITION");
    expect(!answer.message.empty(), std::string("event_elapsed ") + what + " was refused without a message");
  };
  refused("from an event without PLIANT_EVENT_TIMING", untimed, timed);
  refused("to an event without PLIANT_EVENT_TIMING", timed, untimed);
  refused("to an event that was not reached yet", timed, unreached);
  refused("from an event that was not reached yet", unreached, timed);
}

}  // namespace

std::vector<Check> event_checks() {
  return {
      {"order.wait_event", "a stream that waits for an event continues after it", wait_event},
      {"order.rerecorded", "stream_wait_event waits for the event as recorded at the time of the call",
       recorded_by_now},
      {"order.never_recorded", "an event that was never recorded is done", never_recorded},
      {"order.event_query", "event_query is right before, during and after work", event_query},
      {"order.elapsed", "the time between events is not negative, and adds up", elapsed},
      {"order.elapsed_seconds", "the time between events is in seconds", elapsed_seconds},
      {"order.elapsed_refused", "event_elapsed refuses events without timing and events that were not reached",
       elapsed_refused},
  };
}

}  // namespace pliant::testkit
