// Steps: what the carrier does for a communicator in the order of streams of the device.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "collectives/peers/called.hpp"
#include "collectives/peers/carrier_comm.hpp"
#include "collectives/peers/turns.hpp"

namespace pliant::collectives {

/// One thread at a time enqueues. Lives until is_idle().
class Steps {
 public:
  /// Gets what a step threw, and the stream that it is on. On a thread of the device.
  using Failed = std::function<void(const sdk::Failure&, pliant_stream*)>;
  Steps(const Called& device, CarrierComm& comm, Turns& turns, Failed failed)
      : device_(device), comm_(comm), turns_(turns), failed_(std::move(failed)) {}

  /// Enqueues a step; the stream goes on when the exchange is done. `after`, if any, runs then and may throw.
  void step(pliant_stream* stream, CarrierComm::Exchange exchange, std::function<void()> after = {});
  /// A step that is one call of the carrier: `carry(on, &pliant_collectives::all_gather, send, recv, count, dtype)`.
  template <class... Parameters, class... Arguments>
  void carry(pliant_stream* stream, int32_t (*pliant_collectives::*slot)(void*, pliant_comm*, Parameters...),
             Arguments... arguments) {
    step(stream, [this, slot, arguments...](pliant_comm* comm, pliant_stream* on) {
      carrier().collectives.must(slot, comm, arguments..., on);
    });
  }
  void copy(const std::vector<pliant_copy>& copies, pliant_stream* stream) const;

  [[nodiscard]] const Called& device() const { return device_; }
  [[nodiscard]] const Called& carrier() const { return comm_.carrier(); }
  /// All steps have run.
  [[nodiscard]] bool is_idle() const { return pending_.load() == 0; }

 private:
  struct Step;
  static void run(void* context);

  const Called& device_;
  CarrierComm& comm_;
  Turns& turns_;
  const Failed failed_;
  std::atomic<uint64_t> pending_{0};  ///< enqueued and not run
  uint64_t count_ = 0;                ///< so far
};

}  // namespace pliant::collectives
