// No call that enqueues waits for the work.
#include <atomic>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/gate.hpp"
#include "testkit/sample_work.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

void returns_at_once(const Subject& subject, WorkKind kind) {
  const Accelerator accelerator(subject);
  const Stream held(accelerator);
  const Stream beside(accelerator);
  const SampleWork first(accelerator, subject.seed);
  const SampleWork second(accelerator, subject.seed + 1);
  {
    Gate gate;
    gate.hold(accelerator, held);
    const std::string name = name_of(kind);
    returns_soon(name + " on a blocked stream", [&] { first.enqueue(kind, held); });
    expect(!held.done(), "stream_query reports a stream as done while a host function on it waits");
    returns_soon(name + " on a stream beside a blocked one", [&] { second.enqueue(kind, beside); });
    returns_soon("work on a stream beside a blocked one", [&] { beside.wait(); });
    expect(!held.done(), "stream_query reports a stream as done while a host function on it waits");
  }
  held.wait();
  first.verify(kind);
  second.verify(kind);
}

void async_copy(const Subject& s) {
  returns_at_once(s, WorkKind::kCopy);
}
void async_batch(const Subject& s) {
  returns_at_once(s, WorkKind::kBatch);
}
void async_fill(const Subject& s) {
  returns_at_once(s, WorkKind::kFill);
}
void async_reduce(const Subject& s) {
  returns_at_once(s, WorkKind::kReduce);
}
void async_cast(const Subject& s) {
  returns_at_once(s, WorkKind::kCast);
}

void events(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream held(accelerator);
  const Stream beside(accelerator);
  const Event event(accelerator);
  Gate gate;
  gate.hold(accelerator, held);
  returns_soon("event_record on a blocked stream", [&] { event.record(held); });
  returns_soon("stream_wait_event for an event that was not reached",
               [&] { must("stream_wait_event", accelerator.call(&Slots::stream_wait_event, beside, event)); });
  returns_soon("stream_query on a blocked stream", [&] { static_cast<void>(held.done()); });
  returns_soon("event_query for an event that was not reached", [&] { static_cast<void>(event.done()); });
  gate.open();
  returns_soon("a stream that waited for an event", [&] { beside.wait(); });
}

void host_function(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream held(accelerator);
  std::atomic<int> calls{0};
  void (*const function)(void*) = [](void* context) { ++*static_cast<std::atomic<int>*>(context); };
  {
    Gate gate;
    gate.hold(accelerator, held);
    returns_soon("host_function on a blocked stream", [&] {
      for (int i = 0; i < 100; ++i) {
        must("host_function", accelerator.call(&Slots::host_function, function, static_cast<void*>(&calls), held));
      }
    });
    expect(calls == 0, "a host function ran before earlier work of its stream");
  }
  held.wait();
  expect(calls == 100, "of 100 host functions " + std::to_string(calls) + " ran");
}

/// A queue that is full must not make the caller wait for the device.
void deep_queue(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream held(accelerator);
  const SampleWork work(accelerator, subject.seed);
  {
    Gate gate;
    gate.hold(accelerator, held);
    returns_soon("the last of 900 fills on a blocked stream", [&] {
      for (int i = 0; i < 900; ++i) work.enqueue(WorkKind::kFill, held);
    });
  }
  held.wait();
  work.verify(WorkKind::kFill);
}

}  // namespace

std::vector<Check> async_checks() {
  return {
      {"async.copy", "copy_async returns while a host function blocks its stream, or another one", async_copy},
      {"async.batch", "copy_batch_async returns while a host function blocks its stream", async_batch},
      {"async.fill", "fill_async returns while a host function blocks its stream", async_fill},
      {"async.reduce", "reduce_async returns while a host function blocks its stream", async_reduce},
      {"async.cast", "cast_async returns while a host function blocks its stream", async_cast},
      {"async.events", "event_record, stream_wait_event and the queries return while a host function blocks the stream",
       events},
      {"async.host_function", "host_function returns while a host function blocks its stream", host_function},
      {"async.deep", "the last of 900 calls returns while a host function blocks the stream", deep_queue},
  };
}

}  // namespace pliant::testkit
