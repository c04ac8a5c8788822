// Injection: the faults that the simulator makes, each drawn from (seed, what for, where, when), so that a run can be
// repeated.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernel/faults.hpp"

namespace pliant::accelerator {

enum class Purpose : uint64_t { kDelay = 1, kOrder = 2, kAllocation = 3 };

/// A number that depends on nothing but the arguments.
uint64_t draw(uint64_t seed, Purpose purpose, uint64_t where, uint64_t when);

struct InjectionPlan {
  uint64_t seed = 1;
  int64_t max_delay_us = 0;  ///< 0: no delays
  bool reorder = false;
  std::vector<int64_t> fail_alloc_at;  ///< allocations that fail, counted from 1
  double fail_alloc_probability = 0;
  int64_t lost_rank = -1;  ///< -1: none
  int64_t lost_at = 1;     ///< counted from 1 on each communicator
};

class Turnstile;

class Injection final : public Faults {
 public:
  explicit Injection(InjectionPlan plan);
  ~Injection() override;
  /// What before_work sleeps for.
  [[nodiscard]] int64_t delay_us(uint64_t stream, uint64_t index) const;

  void before_alloc(uint64_t bytes) override;
  void enqueued(uint64_t stream, uint64_t index, WorkKind kind, std::function<bool()> passable) override;
  void before_work(uint64_t stream, uint64_t index) override;
  void after_work(uint64_t stream, uint64_t index) override;
  bool loses(int32_t rank, uint64_t collective) override;

 private:
  const InjectionPlan plan_;
  const std::unique_ptr<Turnstile> turnstile_;  // NULL: work runs as it comes
  std::atomic<uint64_t> allocations_{0};
};

}  // namespace pliant::accelerator
