// Injection: the faults that the simulator makes, each drawn from (seed, what for, where, when), so that a run can be
// repeated.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "clock.hpp"
#include "common/cpu/faults.hpp"

namespace pliant::accelerator {

enum class Purpose : uint64_t { kDelay = 1, kOrder = 2, kAllocation = 3 };

/// A number that depends on nothing but the arguments.
uint64_t draw(uint64_t seed, Purpose purpose, uint64_t where, uint64_t when);

/// Something that happens to a rank at one of its collectives, counted from 1 on each communicator.
struct RankFault {
  int64_t rank = -1;  ///< -1: none
  int64_t at = 1;
  [[nodiscard]] bool hits(int32_t a_rank, uint64_t collective) const {
    return a_rank == rank && collective == static_cast<uint64_t>(at);
  }
};

struct InjectionPlan {
  uint64_t seed = 1;
  int64_t max_delay_us = 0;  ///< 0: no delays
  bool reorder = false;
  std::vector<int64_t> fail_alloc_at;  ///< allocations that fail, counted from 1
  double fail_alloc_probability = 0;
  int64_t lose_device_at = 0;  ///< copy, computation or collective, counted from 1 as enqueued; 0: none
  RankFault lost = {};
  RankFault killed = {};
  RankFault stopped = {};
  int64_t slow_rank = -1;  ///< -1: none
  double slow_factor = 1;
  std::optional<CostModel> virtual_clock = {};  ///< nothing: real time
};

class Turnstile;

class Injection final : public Faults {
 public:
  explicit Injection(InjectionPlan plan);
  ~Injection() override;
  /// By how much a piece of work begins late.
  [[nodiscard]] int64_t delay_us(uint64_t stream, uint64_t index) const;
  /// NULL when time is real.
  [[nodiscard]] VirtualClock* clock() const { return clock_.get(); }

  void before_call() override;
  void before_alloc(uint64_t bytes) override;
  void opened(uint64_t stream, sdk::StreamRole role) override;
  std::shared_ptr<Moment> enqueued(uint64_t stream, uint64_t index, Piece piece) override;
  bool before_work(uint64_t stream, uint64_t index, WorkKind kind, Moment* moment) override;
  void after_work(uint64_t stream, uint64_t index) override;
  [[nodiscard]] sdk::Failure loss() const override;
  void joined(int32_t rank) override;
  bool loses(int32_t rank, uint64_t collective) override;
  [[nodiscard]] bool keeps_time() const override { return clock_ != nullptr; }
  uint64_t ready_ns() override;
  uint64_t transferred(uint64_t begin_ns, uint64_t bytes) override;

 private:
  struct Running;
  static Running& running();
  /// That of the piece of work which this thread runs, on a virtual clock.
  static Moment& here();

  const InjectionPlan plan_;
  const std::unique_ptr<VirtualClock> clock_;
  const std::unique_ptr<Turnstile> turnstile_;  // NULL: work runs as it comes
  std::atomic<uint64_t> allocations_{0};
  std::atomic<uint64_t> pieces_{0};
  std::atomic<bool> is_slow_{false};
  std::atomic<bool> is_lost_{false};
  std::mutex mutex_;
  std::optional<std::pair<uint64_t, uint64_t>> last_piece_;  // stream and index of that with which the device is lost
};

}  // namespace pliant::accelerator
