// Streams: what runs before what, and what the plugin says about it.
#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <thread>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/checks/order_work.hpp"
#include "testkit/gate.hpp"
#include "testkit/sample_work.hpp"
#include "testkit/values.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

/// A call that has not returned after this is taken for one that blocks.
constexpr int kBlocksMs = 1000;

void nothing_before(const Subject& subject, WorkKind kind) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  const SampleWork work(accelerator, subject.seed);
  {
    Gate gate;
    gate.hold(accelerator, stream);
    // The call may block: whether it may is another check. One that works at once has done so when it returns.
    std::future<void> call = std::async(std::launch::async, [&] { work.enqueue(kind, stream); });
    call.wait_for(std::chrono::milliseconds(kBlocksMs));
    let_run(accelerator);
    const bool untouched = work.untouched();
    gate.open();
    call.get();
    expect(untouched, std::string(name_of(kind)) + " ran before earlier work of its stream");
  }
  stream.wait();
  work.verify(kind);
}

void order_copy(const Subject& s) {
  nothing_before(s, WorkKind::kCopy);
}
void order_batch(const Subject& s) {
  nothing_before(s, WorkKind::kBatch);
}
void order_fill(const Subject& s) {
  nothing_before(s, WorkKind::kFill);
}
void order_reduce(const Subject& s) {
  nothing_before(s, WorkKind::kReduce);
}
void order_cast(const Subject& s) {
  nothing_before(s, WorkKind::kCast);
}

/// Every piece uses what the one before it made.
void chain(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  constexpr uint64_t kCount = 5000;
  Elements one(PLIANT_I32, kCount);
  for (uint64_t i = 0; i < kCount; ++i) one.put(i, 1);
  const Memory sum(accelerator, kCount * 4);
  const Memory step(accelerator, kCount * 4);
  accelerator.write(step.at(), one.bytes().data(), kCount * 4);
  must("fill_async", accelerator.call(&Slots::fill_async, static_cast<void*>(sum.at()), 0, kCount * 4, stream));
  const void* pointers[] = {sum.at(), step.at()};
  const void* const* from = pointers;
  for (int i = 0; i < 300; ++i) {
    must("reduce_async", accelerator.call(&Slots::reduce_async, static_cast<void*>(sum.at()), from, 2, kCount,
                                          PLIANT_I32, PLIANT_SUM, 1.0, stream));
  }
  stream.wait();
  Elements got(PLIANT_I32, kCount);
  accelerator.read(got.at(0), sum.at(), kCount * 4);
  for (uint64_t i = 0; i < kCount; ++i) {
    expect(got.integer(i) == 300,
           "1 was added 300 times on one stream, and the sum is " + std::to_string(got.integer(i)));
  }
}

void stream_query_once(const Accelerator& accelerator) {
  const Stream stream(accelerator);
  expect(stream.done(), "stream_query reports a new stream as not done");
  Gate gate;
  gate.hold(accelerator, stream);
  for (int i = 0; i < 20; ++i) expect(!stream.done(), "stream_query reports a stream as done while work on it waits");
  gate.open();
  stream.wait();
  expect(stream.done(), "stream_query reports a stream as not done after it was synchronized");
}

/// A stream's thread may note late that its work is done; of many times it once will.
void stream_query(const Subject& subject) {
  const Accelerator accelerator(subject);
  for (int i = 0; i < 50; ++i) stream_query_once(accelerator);
}

void synchronize_waits_once(const Accelerator& accelerator, const char* what, bool by_event) {
  const Stream stream(accelerator);
  const Event event(accelerator);
  Gate gate;
  gate.hold(accelerator, stream);
  event.record(stream);
  std::atomic<bool> begun{false};
  std::atomic<bool> returned{false};
  std::thread waiter([&] {
    begun = true;
    begun.notify_all();
    by_event ? event.wait() : stream.wait();
    returned = true;
  });
  begun.wait(false);
  let_run(accelerator);
  expect(!returned, std::string(what) + " returned while work that it must wait for had not run");
  gate.open();
  waiter.join();
}

/// One that does not wait need not have returned yet; of several times it will have.
void synchronize_waits(const Subject& subject, const char* what, bool by_event) {
  const Accelerator accelerator(subject);
  for (int i = 0; i < 10; ++i) synchronize_waits_once(accelerator, what, by_event);
}

void event_synchronize(const Subject& s) {
  synchronize_waits(s, "event_synchronize", true);
}
void stream_synchronize(const Subject& s) {
  synchronize_waits(s, "stream_synchronize", false);
}

void apart_streams(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Memory memory(accelerator, kOrderBytes);
  const Stream held(accelerator);
  const Stream free_one(accelerator);
  Gate gate;
  gate.hold(accelerator, held);
  fill(accelerator, memory, 5, free_one);
  returns_soon("stream_synchronize on a stream beside a blocked one", [&] { free_one.wait(); });
  expect(first_byte(accelerator, memory) == 5, "work on a stream beside a blocked one did not run");
}

void host_functions(const Subject& subject) {
  const Accelerator accelerator(subject);
  struct Note {
    std::mutex mutex;
    std::vector<int> order;
  } note;
  struct Call {
    Note& note;
    int number;
  };
  std::vector<Call> calls;
  constexpr int kCalls = 200;
  for (int i = 0; i < kCalls; ++i) calls.push_back({note, i});
  const Memory memory(accelerator, kOrderBytes);
  const Stream stream(accelerator);
  void (*const function)(void*) = [](void* context) {
    const Call& call = *static_cast<Call*>(context);
    const std::lock_guard lock(call.note.mutex);
    call.note.order.push_back(call.number);
  };
  for (Call& call : calls) {
    fill(accelerator, memory, call.number % 256, stream);
    must("host_function", accelerator.call(&Slots::host_function, function, static_cast<void*>(&call), stream));
  }
  stream.wait();
  const std::lock_guard lock(note.mutex);
  expect(note.order.size() == kCalls, std::to_string(kCalls) + " host functions were enqueued, " +
                                          std::to_string(note.order.size()) + " calls were made");
  for (int i = 0; i < kCalls; ++i) {
    const int ran = note.order[static_cast<size_t>(i)];
    expect(ran == i, "host function " + std::to_string(ran) + " ran in the place of number " + std::to_string(i));
  }
}

void destroy_waits(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Memory memory(accelerator, 1U << 20U);
  std::atomic<bool> ran{false};
  {
    const Stream stream(accelerator);
    for (int i = 0; i < 20; ++i) fill(accelerator, memory, i, stream, 1U << 20U);
    void (*const function)(void*) = [](void* context) { *static_cast<std::atomic<bool>*>(context) = true; };
    must("host_function", accelerator.call(&Slots::host_function, function, static_cast<void*>(&ran), stream));
  }
  expect(ran, "stream_destroy returned before enqueued work had run");
}

void roles(const Subject& subject) {
  const Accelerator accelerator(subject);
  for (int32_t role = PLIANT_STREAM_COMPUTE; role <= PLIANT_STREAM_TO_HOST; ++role) {
    for (int32_t priority = PLIANT_PRIORITY_LOW; priority <= PLIANT_PRIORITY_HIGH; ++priority) {
      const Stream stream(accelerator, 0, role, priority);
      for (const WorkKind kind : kWorkKinds) {
        const SampleWork work(accelerator, subject.seed);
        work.enqueue(kind, stream);
        stream.wait();
        work.verify(kind);
      }
    }
  }
}

}  // namespace

std::vector<Check> order_checks() {
  return {
      {"order.copy", "a copy waits for earlier work on its stream", order_copy},
      {"order.batch", "a batch of copies waits for earlier work on its stream", order_batch},
      {"order.fill", "a fill waits for earlier work on its stream", order_fill},
      {"order.reduce", "a reduction waits for earlier work on its stream", order_reduce},
      {"order.cast", "a cast waits for earlier work on its stream", order_cast},
      {"order.chain", "300 reductions on one stream each see the result of the one before", chain},
      {"order.stream_query", "stream_query is right before, during and after work", stream_query},
      {"order.event_synchronize", "event_synchronize waits for the event", event_synchronize},
      {"order.stream_synchronize", "stream_synchronize waits for the stream's work", stream_synchronize},
      {"order.apart", "a stream runs while another one is blocked", apart_streams},
      {"order.host_function", "every host function runs once, in stream order", host_functions},
      {"order.roles", "streams of every role and priority do all kinds of work", roles},
      {"order.destroy", "stream_destroy waits for enqueued work", destroy_waits},
  };
}

}  // namespace pliant::testkit
