// How a peer's collectives are timed: as `pliant accel bench` times ours.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace peer {

/// Calls that follow each other without a barrier, as Measured::in_a_row.
constexpr int kCallsInARow = 8;

/// What one rank took, per call: `calls` calls behind a barrier, `repetitions` times after two that do not count.
template <class Barrier, class Call>
std::vector<int64_t> times_ns(int repetitions, int calls, Barrier&& barrier, Call&& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<int64_t> times;
  for (int i = -2; i < repetitions; ++i) {
    barrier();
    const auto begin = Clock::now();
    for (int c = 0; c < calls; ++c) call();
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
    if (i >= 0) times.push_back(took / calls);
  }
  return times;
}

/// One line of JSON. `slowest`: of each repetition the slowest rank.
inline void print(const char* what, uint64_t bytes, int calls, const std::vector<int64_t>& slowest) {
  std::string list;
  for (const int64_t time : slowest) list += (list.empty() ? "" : ",") + std::to_string(time);
  std::printf("{\"what\":\"%s\",\"bytes\":%llu,\"calls\":%d,\"times_ns\":[%s]}\n", what,
              static_cast<unsigned long long>(bytes), calls, list.c_str());
  std::fflush(stdout);
}

}  // namespace peer
