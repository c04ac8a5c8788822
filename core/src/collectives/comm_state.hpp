// CommState: a communicator of GenericCollectives: its turn among the calls, what the ranks agree on, and how it ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "collectives/deferred_calls.hpp"
#include "collectives/generic_collectives.hpp"
#include "collectives/peers/called.hpp"
#include "collectives/peers/carrier_comm.hpp"
#include "collectives/peers/native_comm.hpp"
#include "collectives/peers/peer_memory.hpp"
#include "collectives/peers/peer_watch.hpp"
#include "collectives/peers/turns.hpp"
#include "collectives/transport/steps.hpp"
#include "collectives/transport/transport.hpp"

namespace pliant::collectives {

/// What enqueued work needs of a communicator; outlives it until that work has run.
class CommState final : private DeferredCalls::Work {
 public:
  /// `renewal`: of which older one the native communicator may be made.
  CommState(GenericCollectives& all, int32_t device_index, const pliant_comm_id& id, int32_t rank, int32_t world_size,
            NativeComm::Renewal renewal = {});
  ~CommState() override;
  CommState(const CommState&) = delete;
  CommState& operator=(const CommState&) = delete;

  [[nodiscard]] const Place& place() const { return place_; }
  [[nodiscard]] int32_t rank() const { return place_.rank; }
  [[nodiscard]] int32_t world_size() const { return place_.world_size; }

  /// One call on `stream`: `body` makes it by the transport, on the stream that it is given. Throws what that throws;
  /// the communicator has failed then. [any thread]
  using Body = std::function<void(Transport& via, pliant_stream* on)>;
  void call(const Body& body, pliant_stream* stream);
  /// The one that the ranks have agreed on, after a call that has come to its end.
  [[nodiscard]] const Transport& transport() const { return *transport_; }

  /// Throws the failure of the communicator.
  void check() const { turns_.check(); }
  void wait_ready(int32_t timeout_ms);
  void abort();
  /// For a communicator that is made of this one; may be NULL.
  [[nodiscard]] std::shared_ptr<NativeComm> native_to_renew() { return watch_.native_to_renew(); }

  /// No step will call the carrier any more.
  void close();
  [[nodiscard]] bool is_idle() const { return deferred_.is_idle() && steps_.is_idle(); }
  /// Once idle for good: ends the thread.
  void stop_work() { deferred_.stop(); }
  /// Idle for good: nothing of other ranks is used any more.
  void let_go();
  /// Idle, and nobody uses what is freed with this.
  [[nodiscard]] bool may_go() const;

 private:
  void begin() override;
  void before_call() override;
  void refused(const sdk::Failure& failure) override;
  void after_call() override;
  void failed(const sdk::Failure& failure, pliant_stream* stream) override;
  [[nodiscard]] bool has_watch() const override { return watch_.has_native(); }
  bool watch() override { return watch_.look(); }

  /// Calls go to the native collectives, and none is left that a thread carries out.
  [[nodiscard]] bool is_settled() const { return watch_.has_native() && deferred_.is_empty(); }
  /// The ranks say what they can, and take what all of them can.
  void agree();
  /// The part in agree() of a rank whose calls are not deferred: it says that it can nothing.
  void decline(pliant_stream* stream);

  GenericCollectives& owner_;
  const Called device_;
  const Place place_;
  const bool is_direct_;    ///< the carrier may use the device's memory
  const bool is_deferred_;  ///< what calls do is agreed on first
  CarrierComm carrier_;
  Turns turns_;
  PeerWatch watch_;
  Steps steps_;
  std::unique_ptr<PeerMemory> memory_;
  std::unique_ptr<Transport> transport_;
  std::mutex calling_;    ///< steps are numbered in the order of the calls
  bool has_met_ = false;  ///< the ranks have agreed, or this one has enqueued what it has to say
  DeferredCalls deferred_;
};

}  // namespace pliant::collectives
