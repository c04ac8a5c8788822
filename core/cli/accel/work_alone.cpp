// What one process times by itself: copies, latencies, allocations, reductions and casts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "accel/worker.hpp"
#include "pliant/error.hpp"

namespace pliant::cli {

namespace {

constexpr MemoryKind kDevice = MemoryKind::kDevice;
constexpr MemoryKind kPinned = MemoryKind::kPinned;
/// Small enough that the copy itself does not count.
constexpr uint64_t kSmall = 64;

[[noreturn]] void wrong_result(const std::string& what) {
  throw Error(Status::kDataLoss, fmt::format("{} gave a wrong result", what), Origin::kPlugin);
}

Work copy_work(Bench& bench, const std::string& what, uint64_t bytes) {
  Work work;
  work.bytes = bytes;
  work.moved = bytes;
  const auto one_way = [&](void* to, const void* from) {
    work.run = [&bench, to, from, bytes] {
      bench.stream().copy(to, from, bytes);
      bench.stream().synchronize();
    };
  };
  if (what == "host_to_device") one_way(bench.memory(kDevice, 0, bytes), bench.memory(kPinned, 0, bytes));
  if (what == "device_to_host") one_way(bench.memory(kPinned, 0, bytes), bench.memory(kDevice, 0, bytes));
  if (what == "device_to_device") one_way(bench.memory(kDevice, 0, bytes), bench.memory(kDevice, 1, bytes));
  if (work.run) return work;
  void* const device = bench.memory(kDevice, 0, bytes);
  void* const source = bench.memory(kDevice, 1, bytes);
  void* const pinned = bench.memory(kPinned, 0, bytes);
  void* const target = bench.memory(kPinned, 1, bytes);
  work.moved = 2 * bytes;
  work.run = [=, &bench] {
    bench.stream().copy(device, pinned, bytes);
    bench.other_stream().copy(target, source, bytes);
    bench.stream().synchronize();
    bench.other_stream().synchronize();
  };
  return work;
}

/// A thread that answers: what a change to another thread and back costs on this machine, whatever the accelerator.
class Answering {
 public:
  Answering() : thread_([this] { run(); }) {}
  ~Answering() {
    pass_to(kNobody);
    thread_.join();
  }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;
  void ask() {
    pass_to(kThread);
    std::unique_lock lock(mutex_);
    passed_.wait(lock, [this] { return turn_ == kCaller; });
  }

 private:
  enum Turn { kCaller, kThread, kNobody };
  void pass_to(Turn turn) {
    const std::lock_guard lock(mutex_);
    turn_ = turn;
    passed_.notify_all();
  }
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      passed_.wait(lock, [this] { return turn_ != kCaller; });
      if (turn_ == kNobody) return;
      turn_ = kCaller;
      passed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable passed_;
  Turn turn_ = kCaller;
  std::thread thread_;
};

Work latency_work(Bench& bench, const std::string& what) {
  if (what == "thread_and_back") {
    Work work;
    work.run = [answering = std::make_shared<Answering>()] { answering->ask(); };
    return work;
  }
  void* const to = bench.memory(kDevice, 0, kSmall);
  const void* const from = bench.memory(kDevice, 1, kSmall);
  const auto enqueue = [=, &bench] { bench.stream().copy(to, from, kSmall); };
  const auto both = [&bench] {
    bench.stream().synchronize();
    bench.other_stream().synchronize();
  };
  const auto event = std::make_shared<Event>(bench.accelerator(), bench.device());
  const auto record = [=, &bench] { event->record(bench.stream()); };
  const auto other_waits = [=, &bench] { bench.other_stream().wait(*event); };
  Work work;
  if (what == "enqueue") {
    work.run = enqueue;
    work.settle = both;
  } else if (what == "enqueue_to_end") {
    work.run = [=, &bench] { enqueue(), bench.stream().synchronize(); };
  } else if (what == "synchronize_idle") {
    work.run = [&bench] { bench.stream().synchronize(); };
  } else if (what == "event_record") {
    work.run = record;
    work.settle = both;
  } else if (what == "event_record_to_end") {
    work.run = [=] {
      record();
      event->synchronize();
    };
  } else if (what == "stream_wait_event") {
    work.run = other_waits;
    work.settle = both;
    record();  // the wait is for an event that has been recorded
  } else {
    work.run = [=, &bench] {
      enqueue();
      record();
      other_waits();
      bench.other_stream().synchronize();
    };
  }
  return work;
}

Work alloc_work(Bench& bench, const std::string& what, uint64_t bytes) {
  const MemoryKind kind = what == "pinned" ? kPinned : kDevice;
  Work work;
  work.bytes = bytes;
  if (what == "in_stream_order") {
    work.run = [&bench, bytes] { const StreamBuffer given_back_at_once(bench.stream(), bytes); };
    work.settle = [&bench] { bench.stream().synchronize(); };
    return work;
  }
  work.run = [&bench, kind, bytes] { const Buffer freed_at_once(bench.accelerator(), bench.device(), bytes, kind); };
  return work;
}

Work sum_work(Bench& bench, int32_t sources, DType dtype, uint64_t bytes) {
  const uint64_t width = dtype == DType::kF32 ? 4 : 2;
  const uint64_t count = std::max<uint64_t>(1, bytes / width);
  Work work;
  work.bytes = count * width;
  work.moved = work.bytes * static_cast<uint64_t>(sources + 1);
  std::vector<const void*> from;
  void* const to = bench.memory(kDevice, 0, work.bytes);
  for (int32_t i = 0; i < sources; ++i) {
    from.push_back(bench.memory(kDevice, 2 + static_cast<size_t>(i), work.bytes));
  }
  work.run = [=, &bench] {
    bench.stream().reduce(to, from, count, dtype, ReduceOp::kSum);
    bench.stream().synchronize();
  };
  if (dtype != DType::kF32) return work;
  work.check = [=, &bench, size = work.bytes] {
    float one = 0;
    std::memset(&one, Bench::kFill, sizeof(one));
    float sum = 0;
    bench.read_back(&sum, to, size, sizeof(sum));
    const float wanted = one * static_cast<float>(sources);
    if (!(std::abs(sum - wanted) < wanted * 1e-5F)) wrong_result(fmt::format("a sum of {} sources", sources));
  };
  return work;
}

Work cast_work(Bench& bench, DType from_type, DType to_type, uint64_t bytes) {
  const uint64_t width = from_type == DType::kF32 ? 4 : 2;
  const uint64_t count = std::max<uint64_t>(1, bytes / width);
  Work work;
  work.bytes = count * width;
  work.moved = count * 6;
  void* const to = bench.memory(kDevice, 0, count * 4);
  const void* const from = bench.memory(kDevice, 2, count * 4);
  work.run = [=, &bench] {
    bench.stream().cast(to, to_type, from, from_type, count);
    bench.stream().synchronize();
  };
  return work;
}

}  // namespace

Work work_alone(Bench& bench, const BenchWork& what, uint64_t bytes) {
  if (what.section == "copy") return copy_work(bench, what.name, bytes);
  if (what.section == "latency") return latency_work(bench, what.name);
  if (what.section == "alloc") return alloc_work(bench, what.name, bytes);
  if (what.name == "cast") return cast_work(bench, what.from, what.to, bytes);
  return sum_work(bench, what.sources, what.from, bytes);
}

}  // namespace pliant::cli
