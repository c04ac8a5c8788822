// What the ranks time together: collectives, and copies of memory by all of them at once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "accel/worker.hpp"
#include "pliant/error.hpp"

namespace pliant::cli {

namespace {

constexpr int32_t kDevice = PLIANT_MEMORY_DEVICE;
constexpr int32_t kF32 = PLIANT_F32;
constexpr int32_t kSum = PLIANT_SUM;
constexpr uint64_t kWidth = sizeof(float);

float fill_value() {
  float one = 0;
  std::memset(&one, Bench::kFill, sizeof(one));
  return one;
}

/// One call of a collective over `bytes` in all, and where its result lies.
struct Collective {
  std::function<void()> enqueue;
  void* result = nullptr;
  uint64_t result_bytes = 0;
  uint64_t bytes = 0;
  float wanted = 0;  ///< every element of the result
};

Collective all_gather(Bench& bench, const Team& team, uint64_t bytes) {
  const auto ranks = static_cast<uint64_t>(team.ranks);
  const uint64_t count = std::max<uint64_t>(1, bytes / kWidth / ranks);
  const void* const send = bench.memory(kDevice, 0, count * kWidth);
  void* const recv = bench.memory(kDevice, 1, count * kWidth * ranks);
  const auto enqueue = [=, &bench, comm = team.comm.get()] {
    bench.link().call(&pliant_collectives::all_gather, comm, send, recv, count, kF32, bench.stream().get());
  };
  return {enqueue, recv, count * kWidth * ranks, count * kWidth * ranks, fill_value()};
}

Collective reduce_scatter(Bench& bench, const Team& team, uint64_t bytes) {
  const auto ranks = static_cast<uint64_t>(team.ranks);
  const uint64_t count = std::max<uint64_t>(1, bytes / kWidth / ranks);
  const void* const send = bench.memory(kDevice, 0, count * kWidth * ranks);
  void* const recv = bench.memory(kDevice, 1, count * kWidth);
  const auto enqueue = [=, &bench, comm = team.comm.get()] {
    bench.link().call(&pliant_collectives::reduce_scatter, comm, send, recv, count, kF32, kSum, bench.stream().get());
  };
  return {enqueue, recv, count * kWidth, count * kWidth * ranks, fill_value() * static_cast<float>(team.ranks)};
}

Collective all_reduce(Bench& bench, const Team& team, uint64_t bytes) {
  const uint64_t count = std::max<uint64_t>(1, bytes / kWidth);
  const void* const send = bench.memory(kDevice, 0, count * kWidth);
  void* const recv = bench.memory(kDevice, 1, count * kWidth);
  const auto enqueue = [=, &bench, comm = team.comm.get()] {
    bench.link().call(&pliant_collectives::all_reduce, comm, send, recv, count, kF32, kSum, bench.stream().get());
  };
  return {enqueue, recv, count * kWidth, count * kWidth, fill_value() * static_cast<float>(team.ranks)};
}

Collective broadcast(Bench& bench, const Team& team, uint64_t bytes) {
  const uint64_t count = std::max<uint64_t>(1, bytes / kWidth);
  void* const buffer = bench.memory(kDevice, team.rank == 0 ? 0 : 2, count * kWidth);
  const auto enqueue = [=, &bench, comm = team.comm.get()] {
    bench.link().call(&pliant_collectives::broadcast, comm, buffer, count, kF32, int32_t{0}, bench.stream().get());
  };
  return {enqueue, buffer, count * kWidth, count * kWidth, fill_value()};
}

Collective barrier(Bench& bench, const Team& team) {
  Collective made;
  made.enqueue = [&bench, comm = team.comm.get()] {
    bench.link().call(&pliant_collectives::barrier, comm, bench.stream().get());
  };
  return made;
}

Collective collective(Bench& bench, const Team& team, const std::string& what, uint64_t bytes) {
  if (what == "all_gather") return all_gather(bench, team, bytes);
  if (what == "reduce_scatter") return reduce_scatter(bench, team, bytes);
  if (what == "all_reduce") return all_reduce(bench, team, bytes);
  if (what == "broadcast") return broadcast(bench, team, bytes);
  return barrier(bench, team);
}

/// memcpy by the measuring thread where it can touch the memory, else a copy by the device.
Work memory_copy(Bench& bench, uint64_t bytes, int64_t calls) {
  Work work;
  work.bytes = bytes;
  work.moved = bytes;
  work.calls = calls;
  const void* const from = bench.memory(kDevice, 0, bytes);
  void* const to = bench.memory(kDevice, 1, bytes);
  if (bench.link().device(bench.device()).host_visible) {
    work.run = [=] {
      for (int64_t i = 0; i < calls; ++i) {
        std::memcpy(to, from, bytes);
        asm volatile("" : : "r"(to) : "memory");  // so that every one of them is made
      }
    };
  } else {
    work.run = [=, &bench] {
      for (int64_t i = 0; i < calls; ++i) bench.copy(to, from, bytes, bench.stream());
      bench.synchronize();
    };
  }
  return work;
}

}  // namespace

Work work_together(Bench& bench, const Team& team, const std::string& what, uint64_t bytes, int64_t calls) {
  if (what == "memory_copy") return memory_copy(bench, bytes, calls);
  const Collective one = collective(bench, team, what, bytes);
  Work work;
  work.bytes = one.bytes;
  work.moved = one.bytes;
  work.calls = calls;
  work.run = [=, &bench] {
    for (int64_t i = 0; i < calls; ++i) one.enqueue();
    bench.synchronize();
  };
  if (one.result == nullptr) return work;
  if (what != "broadcast" || team.rank != 0) {  // so that a result that does not come is noticed
    bench.link().call(&pliant_accelerator::fill_async, one.result, int32_t{0}, one.result_bytes, bench.stream().get());
    bench.synchronize();
  }
  work.check = [=, &bench] {
    float last = 0;
    bench.read_back(&last, one.result, one.result_bytes, sizeof(last));
    if (std::abs(last - one.wanted) <= one.wanted * 1e-5F) return;
    throw Error(Status::kDataLoss, fmt::format("{} gave {} where {} is right", what, last, one.wanted),
                ExitCode::kPlugin);
  };
  return work;
}

}  // namespace pliant::cli
