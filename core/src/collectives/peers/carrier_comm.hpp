// CarrierComm: a communicator of the carrier, over which the ranks of a generic one exchange, and by which they learn
// that one of them is lost.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "collectives/peers/called.hpp"

namespace pliant::collectives {

/// A collective of all ranks: `bytes` of each, in rank order, when it returns. Throws when the communicator fails.
using Gather = std::function<void(const void* send, void* recv, uint64_t bytes)>;

/// Any thread may call; one thread at a time calls run and gather.
class CarrierComm {
 public:
  /// Enqueues on the stream.
  using Exchange = std::function<void(pliant_comm*, pliant_stream*)>;

  /// Begins joining. Throws sdk::Failure.
  CarrierComm(const plugin::Instance& carrier, const pliant_comm_id& id, int32_t rank, int32_t world_size);
  ~CarrierComm();
  CarrierComm(const CarrierComm&) = delete;
  CarrierComm& operator=(const CarrierComm&) = delete;

  [[nodiscard]] const Called& carrier() const { return carrier_; }

  /// Returns when what `exchange` enqueued has run. Throws what it reports, and PLIANT_ABORTED once this is closed.
  void run(const Exchange& exchange);
  /// See Gather.
  void gather(const void* send, void* recv, uint64_t bytes);
  void wait_ready(int32_t timeout_ms) const;

  /// Throws PLIANT_ABORTED once this is closed.
  void require_open() const;
  /// The same, and throws what the carrier knows of the other ranks.
  void check() const;
  /// Throws what the carrier knows of the other ranks. False: this is closed, and nothing is known.
  [[nodiscard]] bool look() const;

  /// Ends what peers wait for; nothing once this is closed.
  void abort() const;
  /// The carrier is called no more. `has_failed`: peers may still wait for this rank.
  void close(bool has_failed);
  [[nodiscard]] bool is_closed() const;

 private:
  [[noreturn]] static void throw_closed();

  const Called carrier_;
  mutable std::mutex mutex_;  ///< held during calls on comm_, which return at once
  sdk::OwnedStream stream_;
  sdk::OwnedComm comm_;
  bool is_closed_ = false;
};

}  // namespace pliant::collectives
