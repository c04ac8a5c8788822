// Clocks, spreads and ranks of the benchmark of gathers.
#pragma once

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "pliant/accelerator.hpp"
#include "pliant/communicator.hpp"

namespace pliant::bench {

inline constexpr int64_t kElements = 16384;  // of a parameter

/// Of the calling thread alone, so that ranks that share a core do not count one another's.
inline double thread_micros() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

inline double wall_micros() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Quartiles of n samples.
struct Spread {
  size_t n = 0;
  double low = 0, median = 0, high = 0;
};

inline Spread spread_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  if (n == 0) return {};
  return {n, samples[n / 4], samples[n / 2], samples[3 * n / 4]};
}

inline std::string shown(const Spread& spread) {
  return fmt::format("{:.2f} ({:.2f} to {:.2f})", spread.median, spread.low, spread.high);
}

inline nlohmann::json json_of(const Spread& spread) {
  return {{"n", spread.n}, {"median", spread.median}, {"low", spread.low}, {"high", spread.high}};
}

/// Runs `body(rank, communicator, exchange stream)` on each rank, a thread of its own.
template <class Body>
void on_ranks(const Accelerator& accelerator, int32_t world_size, const Body& body) {
  const CommId id = accelerator.make_comm_id(world_size);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&accelerator, &id, &body, rank, world_size] {
      Stream stream(accelerator, 0);
      Communicator group(accelerator, 0, id, rank, world_size);
      group.wait_ready(60000);
      body(rank, group, stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace pliant::bench
