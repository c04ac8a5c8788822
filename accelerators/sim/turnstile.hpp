// Turnstile: lets the work of several streams through one piece at a time, in an order drawn from a seed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

#include "common/cpu/faults.hpp"

namespace pliant::accelerator {

/// Among the streams whose next work could run, the one with the lowest drawn number goes first. Order within a stream
/// stays. Collectives, host functions, which may block, what only spends time, and waits that cannot pass yet step
/// aside, so that nothing blocks that would not block without it.
class Turnstile {
 public:
  explicit Turnstile(uint64_t seed) : seed_(seed) {}
  void enqueued(uint64_t stream, uint64_t index, WorkKind kind, std::function<bool()> passable);
  /// Blocks until it is the turn of `stream`.
  void enter(uint64_t stream);
  void leave(uint64_t stream);

 private:
  struct Work {
    uint64_t drawn;
    WorkKind kind;
    std::function<bool()> passable;
  };
  [[nodiscard]] bool turn_of(uint64_t stream) const;

  const uint64_t seed_;
  std::mutex mutex_;
  std::condition_variable moved_;
  std::map<uint64_t, std::deque<Work>> streams_;
  bool inside_ = false;
};

}  // namespace pliant::accelerator
