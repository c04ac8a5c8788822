// Membership: one rank's communicator of NCCL, without blocking: joining, asynchronous errors, the end by abort. Knows
// nothing of what is exchanged.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "nccl_api.hpp"
#include "peers.hpp"
#include "pliant/abi/collectives.h"
#include "pliant/sdk/failure.hpp"
#include "stream.hpp"

namespace pliant::cuda {

/// All calls may come from any thread. NCCL is called by one thread at a time.
class Membership {
 public:
  /// Begins to make a communicator, without blocking. Nothing: it cannot begin yet, and is asked again.
  using Make = std::function<std::optional<NcclResult>(NcclComm* made, NcclConfig* config)>;
  /// Begins joining, on a thread of its own, which then watches for errors. `watch` outlives it.
  Membership(const NcclApi& nccl, DevicePtr device, accelerator::ProcessWatch& watch, Make make, int32_t rank,
             int32_t world_size);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  [[nodiscard]] const NcclApi& nccl() const { return nccl_; }
  [[nodiscard]] int32_t rank() const { return rank_; }
  [[nodiscard]] int32_t world_size() const { return world_size_; }
  /// One word of device memory, for barriers.
  [[nodiscard]] void* word() const { return word_; }

  /// Throws why the communicator failed, or PLIANT_DEADLINE_EXCEEDED after timeout_ms (-1: none).
  void wait_ready(int32_t timeout_ms);
  /// Every call has a ticket, in the order of the calls. The holder of the one that is due calls NCCL.
  /// Throws when this takes no more calls.
  uint64_t take_ticket();
  [[nodiscard]] bool is_due(uint64_t ticket);
  /// Waits for readiness and the ticket's turn. Throws why the communicator failed.
  void await_turn(uint64_t ticket);
  void end_turn();

  /// Calls NCCL with the handle, after it has compared `notes` with what the others of this machine call. True: NCCL is
  /// still at it, call settle(). Throws, and the communicator has failed.
  template <class Calls>
  [[nodiscard]] bool issue(std::span<const CallNote> notes, Calls&& calls) {
    peers_->note(notes);
    std::unique_lock lock(calling_);
    return is_in_progress(handle_ == nullptr ? kNcclInProgress : calls(handle_), lock);
  }
  /// Waits until what was issued is on its stream.
  void settle();
  /// What NCCL may write to until it has left.
  void keep(std::shared_ptr<const void> written);
  /// Work of a stream that ends at the mark fails with the communicator.
  void add(std::shared_ptr<devices::FailureSlot> failures, uint64_t number, std::shared_ptr<Mark> mark);

  /// The beginning of a communicator without some ranks; this one has failed. Throws PLIANT_FAILED_PRECONDITION when
  /// not all had joined it.
  NcclResult shrink(std::vector<int> without, NcclComm* made, NcclConfig* config);
  /// Takes no more calls: what was enqueued runs, and then it grows to another. Throws PLIANT_FAILED_PRECONDITION
  /// unless all ranks have joined and it has not failed.
  void retire();
  /// An id with which this one grows; this rank is the one that passes it.
  [[nodiscard]] NcclId make_grow_id();
  /// The beginning of a communicator with more ranks. Nothing while work runs here.
  std::optional<NcclResult> grow(int32_t world_size, const NcclId& id, NcclComm* made, NcclConfig* config);
  [[nodiscard]] const DevicePtr& device() const { return device_; }
  [[nodiscard]] accelerator::ProcessWatch& watch() const { return watch_; }

  /// All have joined, and what was enqueued here has ended: to leave aborts nothing.
  [[nodiscard]] bool is_done();
  /// Ends all waits and work with the failure; the first one stands. `own`: it is this rank's doing.
  void fail(const sdk::Failure& failure, accelerator::FailureCause::Kind own = accelerator::FailureCause::kNone);
  /// Leaves: in agreement with the others where all is done, else by abort.
  void leave();

 private:
  struct Work {
    std::shared_ptr<devices::FailureSlot> failures;
    uint64_t number = 0;
    std::shared_ptr<Mark> mark;
  };
  enum class State { kJoining, kReady, kFailed };
  void join_and_watch(Make make);
  bool begin(const Make& make);
  /// kNcclInProgress while there is no handle.
  NcclResult poll();
  /// Throws where the result is an error; `lock`, of the handle, is given up then.
  bool is_in_progress(NcclResult result, std::unique_lock<std::mutex>& lock);
  /// The first collective: the ranks tell each other how those of their machine find them. Nothing more to do: true.
  bool introduce();
  /// What NCCL told, or what is known here of its cause.
  [[nodiscard]] sdk::Failure explained(const sdk::Failure& told) const;
  [[nodiscard]] sdk::Failure failure_of(NcclResult result);
  void end_handle(bool for_good);
  /// Under the mutex.
  [[nodiscard]] bool is_done_now();
  void forget_reached();

  const NcclApi nccl_;
  const DevicePtr device_;
  const int32_t rank_;
  const int32_t world_size_;
  accelerator::ProcessWatch& watch_;
  const std::shared_ptr<Peers> peers_;
  void* word_ = nullptr;
  void* names_ = nullptr;               ///< pinned: PageName of each rank, while they are told
  cudaStream_t introducing_ = nullptr;  ///< the stream on which they are
  std::vector<std::shared_ptr<const void>> kept_;

  std::mutex calling_;  ///< of the handle
  NcclComm handle_ = nullptr;
  bool revoked_ = false;
  std::optional<NcclId> grow_id_;  ///< made here

  std::mutex mutex_;  ///< of all below
  std::condition_variable changed_;
  State state_ = State::kJoining;
  std::optional<sdk::Failure> failure_;
  std::list<Work> work_;
  uint64_t tickets_ = 0;
  uint64_t turn_ = 0;
  bool leaving_ = false;
  bool retired_ = false;
  std::thread watcher_;
};

}  // namespace pliant::cuda
