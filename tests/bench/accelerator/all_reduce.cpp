// Times all_reduce (f32, sum) of the host plugin between processes, beside memcpy by as many processes at once in the
// same run. Usage: bench_all_reduce [ranks, default 4] [chunk_bytes, default the plugin's own]
#define DOCTEST_CONFIG_DISABLE
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "unit/accelerator/ranks.hpp"

using namespace pliant_test;

namespace {

struct Spread {
  double median_us;
  double low_us;   ///< first quartile
  double high_us;  ///< third quartile
};

Spread spread_of(std::vector<int64_t> times_ns) {
  std::sort(times_ns.begin(), times_ns.end());
  const auto at = [&](size_t quarter) {
    return static_cast<double>(times_ns[(times_ns.size() - 1) * quarter / 4]) / 1000;
  };
  return {at(2), at(1), at(3)};
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Times `work` on the slowest rank, all ranks beginning together each time.
template <class Work>
Spread timed(const Rank& self, pliant_comm* comm, const Stream& stream, int repeats, Work&& work) {
  std::vector<int64_t> times;
  for (int i = -2; i < repeats; ++i) {
    self.device.call(&pliant_collectives::barrier, comm, stream);
    if (!stream.synchronize().ok()) throw std::runtime_error("barrier");
    const int64_t begin = now_ns();
    work();
    int64_t slowest = now_ns() - begin;
    self.device.call(&pliant_collectives::all_reduce, comm, &slowest, &slowest, 1, PLIANT_I64, PLIANT_MAX, stream);
    if (!stream.synchronize().ok()) throw std::runtime_error("maximum");
    if (i >= 0) times.push_back(slowest);
  }
  return spread_of(times);
}

std::string measure(const Rank& self) {
  Comm comm(self.device, self.id(), self.rank, self.world_size);
  const Stream stream(self.device);
  if (self.rank == 0) {
    std::printf("%10s | %12s %23s %8s | %12s %8s | %6s\n", "bytes", "all_reduce", "quartiles us", "GB/s", "memcpy us",
                "GB/s", "ratio");
  }
  for (uint64_t bytes = 4096; bytes <= (uint64_t{64} << 20U); bytes *= 4) {
    std::vector<float> send(bytes / 4, 1.0F);
    std::vector<float> recv(bytes / 4);
    const int repeats = static_cast<int>(std::clamp<uint64_t>((uint64_t{256} << 20U) / bytes, 8, 400));
    const Spread reduce = timed(self, comm, stream, repeats, [&] {
      self.device.call(&pliant_collectives::all_reduce, comm, send.data(), recv.data(), bytes / 4, PLIANT_F32,
                       PLIANT_SUM, stream);
      if (!stream.synchronize().ok()) throw std::runtime_error("all_reduce");
    });
    if (recv.back() != static_cast<float>(self.world_size)) throw std::runtime_error("wrong sum");
    const Spread copy = timed(self, comm, stream, repeats, [&] {
      self.device.call(&pliant_accelerator::copy_async, recv.data(), send.data(), bytes, stream);
      if (!stream.synchronize().ok()) throw std::runtime_error("copy");
    });
    if (self.rank != 0) continue;
    const auto rate = [&](double us) { return static_cast<double>(bytes) / us / 1000; };
    std::printf("%10llu | %12.1f %11.1f %11.1f %8.2f | %12.1f %8.2f | %6.1f\n", static_cast<unsigned long long>(bytes),
                reduce.median_us, reduce.low_us, reduce.high_us, rate(reduce.median_us), copy.median_us,
                rate(copy.median_us), reduce.median_us / copy.median_us);
    std::fflush(stdout);
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
  OptionSettings settings;
  if (argc > 2) settings.integers["chunk_bytes"] = std::atoll(argv[2]);
  Processes processes(ranks, measure, settings);
  int failed = 0;
  for (const RankEnd& end : processes.ends()) {
    if (end.text.empty()) continue;
    std::fprintf(stderr, "%s\n", end.text.c_str());
    failed = 1;
  }
  return failed;
}
