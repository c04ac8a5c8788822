// Many threads at once.
#include <atomic>
#include <thread>

#include "testkit/checks/accelerator_checks.hpp"
#include "testkit/sample_work.hpp"

namespace pliant::testkit {

namespace {

using Slots = pliant_accelerator;

constexpr int kThreads = 6;

void in_threads(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&body, t] { body(t); });
  for (std::thread& thread : threads) thread.join();
}

void own_streams(const Subject& subject) {
  const Accelerator accelerator(subject);
  in_threads([&](int t) {
    const Stream stream(accelerator);
    const SampleWork work(accelerator, subject.seed + static_cast<uint64_t>(t));
    for (int round = 0; round < 40; ++round) {
      for (const WorkKind kind : kWorkKinds) {
        work.enqueue(kind, stream);
        stream.wait();
        work.verify(kind);
      }
    }
  });
}

void one_stream(const Subject& subject) {
  const Accelerator accelerator(subject);
  const Stream stream(accelerator);
  std::atomic<int> calls{0};
  void (*const function)(void*) = [](void* context) { ++*static_cast<std::atomic<int>*>(context); };
  in_threads([&](int) {
    for (int i = 0; i < 300; ++i) {
      must("host_function", accelerator.call(&Slots::host_function, function, static_cast<void*>(&calls), stream));
      if (i % 50 == 0) stream.wait();
    }
  });
  stream.wait();
  expect(calls == kThreads * 300, "of " + std::to_string(kThreads * 300) + " host functions that " +
                                      std::to_string(kThreads) + " threads enqueued on one stream, " +
                                      std::to_string(calls) + " ran");
}

void come_and_go(const Subject& subject) {
  const Accelerator accelerator(subject);
  in_threads([&](int t) {
    for (int round = 0; round < 30; ++round) {
      const Memory memory(accelerator, 1000 + static_cast<uint64_t>(t));
      const Stream stream(accelerator);
      const Event event(accelerator);
      must("fill_async", accelerator.call(&Slots::fill_async, static_cast<void*>(memory.at()), t, 1000, stream));
      event.record(stream);
      event.wait();
      unsigned char byte = 0xFF;
      accelerator.read(&byte, memory.at(999), 1);
      expect(byte == t, "memory of one thread holds what another thread filled in");
    }
  });
}

}  // namespace

std::vector<Check> thread_checks() {
  return {
      {"threads.streams", "several threads enqueue on streams of their own", own_streams, 60},
      {"threads.one_stream", "several threads enqueue on one stream", one_stream},
      {"threads.handles", "several threads create and destroy memory, streams and events", come_and_go, 60},
  };
}

}  // namespace pliant::testkit
