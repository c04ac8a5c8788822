// What hides behind compute: an all-gather, a computation as long, and both at once, by the device's clock.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>

#include "accel/worker.hpp"
#include "pliant/error.hpp"

namespace pliant::cli {

namespace {

/// A stream for the gather beside the bench's own, and where both begin and end.
struct Course {
  explicit Course(const Bench& bench)
      : gathers(bench.accelerator(), bench.device(), StreamRole::kGather),
        begin(bench.accelerator(), bench.device(), true),
        gathered(bench.accelerator(), bench.device()),
        end(bench.accelerator(), bench.device(), true) {}
  Stream gathers;
  Event begin;
  Event gathered;
  Event end;
};

}  // namespace

Work work_beside(Bench& bench, Team& team, const BenchWork& what, uint64_t bytes) {
  const auto ranks = static_cast<uint64_t>(team.ranks);
  const uint64_t count = std::max<uint64_t>(1, bytes / sizeof(float) / ranks);
  const uint64_t part_bytes = count * sizeof(float);
  const void* const send = bench.memory(MemoryKind::kDevice, 0, part_bytes);
  void* const recv = bench.memory(MemoryKind::kDevice, 1, part_bytes * ranks);
  const auto course = std::make_shared<Course>(bench);
  const bool is_gathered = what.name != kCompute;
  Work work;
  work.bytes = part_bytes * ranks;
  work.run = [=, &bench, &team, spent = std::chrono::nanoseconds(what.spent_ns)] {
    Stream& computes = bench.stream();
    course->begin.record(computes);
    if (is_gathered) {
      course->gathers.wait(course->begin);
      team.comm.all_gather(send, recv, count, DType::kF32, course->gathers);
      course->gathered.record(course->gathers);
    }
    if (spent.count() > 0) computes.spend(spent);
    if (is_gathered) computes.wait(course->gathered);
    course->end.record(computes);
    computes.synchronize();
    course->gathers.synchronize();
  };
  work.seconds = [course] { return course->end.seconds_since(course->begin); };
  if (!is_gathered) return work;
  bench.stream().fill(recv, 0, work.bytes);  // so that a result that does not come is noticed
  bench.stream().synchronize();
  work.check = [=, &bench, size = work.bytes] {
    float wanted = 0;
    std::memset(&wanted, Bench::kFill, sizeof(wanted));
    float last = 0;
    bench.read_back(&last, recv, size, sizeof(last));
    if (std::abs(last - wanted) <= wanted * 1e-5F) return;
    throw Error(Status::kDataLoss, fmt::format("all_gather gave {}, not {}", last, wanted), Origin::kPlugin);
  };
  return work;
}

}  // namespace pliant::cli
