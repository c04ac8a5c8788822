// Handles may be destroyed in any order.
#include <memory>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/order_work.hpp"
#include "testkit/collective_work.hpp"
#include "testkit/gate.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

void event_first_once(const Accelerator& accelerator) {
  const Memory memory(accelerator, kOrderBytes);
  const Stream first(accelerator);
  const Stream second(accelerator);
  Gate gate;
  gate.hold(accelerator, first);
  auto event = std::make_unique<Event>(accelerator);
  event->record(first);
  must("stream_wait_event", accelerator.call(&Slots::stream_wait_event, second, *event));
  returns_soon("event_destroy of an event that was not reached", [&] { event.reset(); });
  fill(accelerator, memory, 1, second);
  let_run(accelerator);
  expect(!second.done(), "a stream that waits for an event continued when the event was destroyed");
  gate.open();
  first.wait();
  second.wait();
  expect(first_byte(accelerator, memory) == 1, "work after an event that was destroyed has not run");
}

/// A stream that may run need not have run yet; of several times it will have.
void event_first(const Subject& subject) {
  const Accelerator accelerator(subject);
  for (int i = 0; i < 10; ++i) event_first_once(accelerator);
}

void stream_first(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Memory memory(accelerator, kOrderBytes);
  const Event begin(accelerator, PLIANT_EVENT_TIMING);
  const Event end(accelerator, PLIANT_EVENT_TIMING);
  {
    const Stream stream(accelerator);
    begin.record(stream);
    fill(accelerator, memory, 1, stream);
    end.record(stream);
  }
  expect(end.done(), "event_query reports an event as not done after its stream was destroyed");
  returns_soon("event_synchronize on an event whose stream was destroyed", [&] { end.wait(); });
  const Stream other(accelerator);
  must("stream_wait_event", accelerator.call(&Slots::stream_wait_event, other, end));
  returns_soon("a stream that waits for an event whose stream was destroyed", [&] { other.wait(); });
  double seconds = -1;
  must("event_elapsed", accelerator.call(&Slots::event_elapsed, begin, end, &seconds));
  begin.record(other);
  other.wait();
}

/// Communicators before and after the streams that they were used on, in turn.
void lifetime_script(const Rank& rank) {
  const int32_t device = rank.rank % rank.accelerator.devices();
  for (int i = 0; i < 4; ++i) {
    auto stream = std::make_unique<Stream>(rank.accelerator, device);
    Comm comm(rank, rank.id());
    comm.join();
    const CollectiveWork work(rank, {Collective::kAllReduce, PLIANT_F32, PLIANT_SUM, 1001});
    must("all_reduce", work.enqueue(comm, *stream));
    stream->wait();
    work.verify();
    if (i % 2 == 0) {
      stream.reset();
      comm.destroy();
    } else {
      comm.destroy();
      const Memory memory(rank.accelerator, kOrderBytes, PLIANT_MEMORY_DEVICE, device);
      fill(rank.accelerator, memory, 1, *stream);
      stream->wait();
    }
  }
}

void communicators(const Subject& subject) {
  need_collectives(subject);
  Ranks ranks(subject, "lifetime", 2);
  for (int i = 0; i < 4; ++i) ranks.carry_id();
  ranks.finish();
}

}  // namespace

std::vector<Script> lifetime_scripts() {
  return {{"lifetime", lifetime_script}};
}

std::vector<Check> lifetime_checks() {
  return {
      {"lifetime.event", "an event may be destroyed before it was reached, and while a stream waits for it",
       event_first},
      {"lifetime.stream", "events outlive the stream that they were recorded on", stream_first},
      {"lifetime.communicator", "streams and communicators may be destroyed in any order", communicators, 60},
  };
}

}  // namespace pliant::testkit
