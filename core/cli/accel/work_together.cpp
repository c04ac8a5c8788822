// What the ranks time together: collectives, and copies of memory by all of them at once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "accel/worker.hpp"
#include "pliant/error.hpp"

namespace pliant::cli {

namespace {

constexpr MemoryKind kOnDevice = MemoryKind::kDevice;
constexpr uint64_t kElementBytes = sizeof(float);

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

/// Where collectives find their buffers: memory of the device, or windows of the communicator.
class Buffers {
 public:
  Buffers(Bench& bench, const Team& team, bool windows) : bench_(bench), team_(team), windows_(windows) {}
  /// Then a buffer that all ranks have is the same one on all of them.
  [[nodiscard]] bool are_windows() const { return windows_; }
  /// All bytes are Bench::kFill since it was made.
  [[nodiscard]] void* memory(size_t index, uint64_t bytes) const {
    return windows_ && index < team_.windows.size() ? team_.windows[index].pointer()
                                                    : bench_.memory(kOnDevice, index, bytes);
  }

 private:
  Bench& bench_;
  const Team& team_;
  const bool windows_;
};

Collective all_gather(Bench& bench, Team& team, const Buffers& buffers, uint64_t bytes) {
  const auto ranks = static_cast<uint64_t>(team.ranks);
  const uint64_t count = std::max<uint64_t>(1, bytes / kElementBytes / ranks);
  const void* const send = buffers.memory(0, count * kElementBytes);
  void* const recv = buffers.memory(1, count * kElementBytes * ranks);
  const auto enqueue = [=, &bench, &comm = team.comm] {
    comm.all_gather(send, recv, count, DType::kF32, bench.stream());
  };
  return {enqueue, recv, count * kElementBytes * ranks, count * kElementBytes * ranks, fill_value()};
}

Collective reduce_scatter(Bench& bench, Team& team, const Buffers& buffers, uint64_t bytes) {
  const auto ranks = static_cast<uint64_t>(team.ranks);
  const uint64_t count = std::max<uint64_t>(1, bytes / kElementBytes / ranks);
  const void* const send = buffers.memory(0, count * kElementBytes * ranks);
  void* const recv = buffers.memory(1, count * kElementBytes);
  const auto enqueue = [=, &bench, &comm = team.comm] {
    comm.reduce_scatter(send, recv, count, DType::kF32, ReduceOp::kSum, bench.stream());
  };
  return {enqueue, recv, count * kElementBytes, count * kElementBytes * ranks,
          fill_value() * static_cast<float>(team.ranks)};
}

Collective all_reduce(Bench& bench, Team& team, const Buffers& buffers, uint64_t bytes) {
  const uint64_t count = std::max<uint64_t>(1, bytes / kElementBytes);
  const void* const send = buffers.memory(0, count * kElementBytes);
  void* const recv = buffers.memory(1, count * kElementBytes);
  const auto enqueue = [=, &bench, &comm = team.comm] {
    comm.all_reduce(send, recv, count, DType::kF32, ReduceOp::kSum, bench.stream());
  };
  return {enqueue, recv, count * kElementBytes, count * kElementBytes, fill_value() * static_cast<float>(team.ranks)};
}

Collective broadcast(Bench& bench, Team& team, const Buffers& buffers, uint64_t bytes) {
  const uint64_t count = std::max<uint64_t>(1, bytes / kElementBytes);
  void* const buffer = buffers.memory(team.rank == 0 || buffers.are_windows() ? 0 : 2, count * kElementBytes);
  const auto enqueue = [=, &bench, &comm = team.comm] {
    comm.broadcast(buffer, count, DType::kF32, 0, bench.stream());
  };
  return {enqueue, buffer, count * kElementBytes, count * kElementBytes, fill_value()};
}

Collective barrier(Bench& bench, Team& team) {
  Collective made;
  made.enqueue = [&bench, &comm = team.comm] { comm.barrier(bench.stream()); };
  return made;
}

Collective collective(Bench& bench, Team& team, const BenchWork& what, uint64_t bytes) {
  const Buffers buffers(bench, team, what.windows);
  if (what.name == "all_gather") return all_gather(bench, team, buffers, bytes);
  if (what.name == "reduce_scatter") return reduce_scatter(bench, team, buffers, bytes);
  if (what.name == "all_reduce") return all_reduce(bench, team, buffers, bytes);
  if (what.name == "broadcast") return broadcast(bench, team, buffers, bytes);
  return barrier(bench, team);
}

/// memcpy by the measuring thread where it can touch the memory, else a copy by the device.
Work memory_copy(Bench& bench, uint64_t bytes, int64_t calls) {
  Work work;
  work.bytes = bytes;
  work.moved = bytes;
  work.calls = calls;
  const void* const from = bench.memory(kOnDevice, 0, bytes);
  void* const to = bench.memory(kOnDevice, 1, bytes);
  if (bench.accelerator().properties(bench.device()).host_visible) {
    work.run = [=] {
      for (int64_t i = 0; i < calls; ++i) {
        std::memcpy(to, from, bytes);
        asm volatile("" : : "r"(to) : "memory");  // so that every one of them is made
      }
    };
  } else {
    work.run = [=, &bench] {
      for (int64_t i = 0; i < calls; ++i) bench.stream().copy(to, from, bytes);
      bench.stream().synchronize();
    };
  }
  return work;
}

}  // namespace

Work work_together(Bench& bench, Team& team, const BenchWork& what, uint64_t bytes, int64_t calls) {
  if (what.name == kMemoryCopy) return memory_copy(bench, bytes, calls);
  const Collective one = collective(bench, team, what, bytes);
  Work work;
  work.bytes = one.bytes;
  work.moved = one.bytes;
  work.calls = calls;
  work.run = [=, &bench] {
    for (int64_t i = 0; i < calls; ++i) one.enqueue();
    bench.stream().synchronize();
  };
  if (one.result == nullptr) return work;
  if (what.name != "broadcast" || team.rank != 0) {  // so that a result that does not come is noticed
    bench.stream().fill(one.result, 0, one.result_bytes);
    bench.stream().synchronize();
  }
  work.check = [=, &bench] {
    float last = 0;
    bench.read_back(&last, one.result, one.result_bytes, sizeof(last));
    if (std::abs(last - one.wanted) <= one.wanted * 1e-5F) return;
    throw Error(Status::kDataLoss, fmt::format("{} gave {}, not {}", what.label(), last, one.wanted), Origin::kPlugin);
  };
  return work;
}

}  // namespace pliant::cli
