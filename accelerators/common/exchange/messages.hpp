// Messages: what one rank sends to another, chunk by chunk, through the lane of the two.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/cpu/faults.hpp"
#include "common/exchange/collectives.hpp"
#include "common/exchange/group.hpp"

namespace pliant::accelerator {

/// Runs batches of sends and receives one after the other, on any thread, one at a time.
class Messages {
 public:
  explicit Messages(Group& group);
  /// Blocks until all are sent and taken, or received. Those of a batch get on side by side, those of two ranks in
  /// their order. The i-th to this rank itself is received by its i-th receive, of which there are as many. Throws the
  /// group's failure, and PLIANT_INVALID_ARGUMENT when sizes or types differ; the group has failed then.
  void run(std::span<const Call> calls);

  /// From now on each message has a time by the clock of `faults`: it begins when both sides could begin.
  void keep_time(Faults& faults) { faults_ = &faults; }
  /// By that clock: when this rank's part of the communicator is free again.
  [[nodiscard]] uint64_t link_free_ns() const { return link_free_ns_; }
  void take_link(uint64_t until_ns) { link_free_ns_ = std::max(link_free_ns_, until_ns); }

 private:
  /// All messages of a batch in one direction between this rank and a peer.
  struct Queue {
    std::vector<const Call*> calls;
    size_t next = 0;      ///< the first that is not done
    uint64_t chunks = 0;  ///< of that message, posted or taken
    [[nodiscard]] bool is_done() const { return next == calls.size(); }
  };
  struct Slot {
    int32_t to = -1;     ///< -1: free
    uint64_t chunk = 0;  ///< of the lane
  };

  void run_own();
  bool progress();
  bool send_to(int32_t peer);
  bool receive_from(int32_t peer);
  bool want_from(int32_t peer);
  int32_t free_slot();
  void fail_if_peer_left(int32_t peer);
  [[nodiscard]] uint64_t chunks_of(const Call& call) const;
  [[noreturn]] void mismatch(int32_t from, const sdk::Elements& sent, int32_t to, const sdk::Elements& wanted);
  [[nodiscard]] bool is_done() const;

  void time_message(uint64_t theirs_ns, const Call& call);

  Group& group_;
  Faults* faults_ = nullptr;  ///< NULL: no clock
  uint64_t ready_ns_ = 0;     ///< when the messages of the present batch could begin here
  uint64_t link_free_ns_ = 0;
  std::vector<uint64_t> sent_;    ///< messages to each peer so far
  std::vector<uint64_t> wanted_;  ///< receives from each peer that have begun
  std::array<Slot, kLaneSlots> slots_;
  std::vector<Queue> sends_;  ///< of the present batch, by peer
  std::vector<Queue> receives_;
};

}  // namespace pliant::accelerator
