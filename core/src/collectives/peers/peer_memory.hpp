// PeerMemory: a stage of an accelerator's memory that every rank of a communicator has and all others map.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/peers/carrier_comm.hpp"
#include "pliant/abi/ipc.h"

namespace pliant::collectives {

/// One thread at a time.
class PeerMemory {
 public:
  /// Of one slot; there are two, so that a rank fills one while others still read the other.
  static constexpr uint64_t kSlotBytes = uint64_t{4} << 20U;
  static constexpr uint64_t kSlots = 2;

  /// The device can have such memory.
  static bool is_there(const Called& device, int32_t device_index);

  /// That of this rank, where all ranks have such memory and can map it, and `can` on all of them; or NULL on every
  /// rank.
  static std::unique_ptr<PeerMemory> agree(const Called& device, const Place& place, bool can, const Gather& gather);
  /// The part in agree() of a rank that has no such memory.
  static void decline(int32_t world_size, const Gather& gather);

  /// A stage of `bytes`; of all slots unless something else is kept in it.
  PeerMemory(const Called& device, int32_t device_index, int32_t rank, int32_t world_size,
             uint64_t bytes = kSlots * kSlotBytes);
  /// The stage is free then, whoever may still have it mapped.
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// Gives this rank's stage to all others and takes theirs. True on every rank, or on none: then some rank has no such
  /// memory, or could not map another's, and nothing is mapped any more.
  bool join(const Gather& gather);

  [[nodiscard]] std::byte* stage(int32_t rank) const { return peers_[static_cast<size_t>(rank)].stage; }
  [[nodiscard]] std::byte* slot(int32_t rank, uint64_t number) const;
  /// The number of the next slot, the same on all ranks: it is free once they have met since it was last used.
  [[nodiscard]] uint64_t next_slot() { return used_++; }
  /// That slot, which is free until then, without taking it.
  [[nodiscard]] uint64_t coming_slot() const { return used_; }

  /// Unmaps the stages of the others; no enqueued work uses them any more.
  void let_go();
  /// Nobody has this rank's stage mapped: each other rank has let go, or is no more.
  [[nodiscard]] bool is_let_go() const;

 private:
  struct Card;    // what each rank tells first
  struct Letter;  // what carries a handle
  [[nodiscard]] Card own_card() const;
  [[nodiscard]] bool is_here(const Card& peer) const;
  void send_to(const Card& peer) const;
  [[nodiscard]] bool receive_from(int32_t peer, const Card& card);

  struct Peer {
    std::byte* stage = nullptr;
    sdk::ImportedMemory imported;  ///< empty where the stage is of this process
    std::array<char, 8> name{};
  };
  /// False where its memory cannot be mapped.
  [[nodiscard]] bool map(Peer& peer, const pliant_ipc_handle& handle) const;

  const int32_t device_index_;
  const int32_t rank_;
  const int32_t world_size_;
  const sdk::Calls<pliant_ipc> ipc_;
  const sdk::OwnedMemory own_;
  int socket_ = -1;  ///< open while this rank may have stages of others mapped: its name says so
  std::array<char, 8> name_{};
  uint64_t secret_ = 0;
  uint64_t used_ = 0;
  std::vector<Peer> peers_;
};

}  // namespace pliant::collectives
