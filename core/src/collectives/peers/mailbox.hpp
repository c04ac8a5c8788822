// Mailbox: what the ranks of a communicator write to each other of their calls, in memory of the carrier that all of
// them have mapped. Of messages between devices, so that nobody waits for one peer who could go on with another; of
// calls of the native collectives, how many there were, so that nobody waits for a rank that has left.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/peers/called.hpp"
#include "collectives/peers/peer_memory.hpp"

namespace pliant::collectives {

/// From one rank to another, written by the sender. The fields belong to message `begun` and stay as they are until the
/// receiver has taken all of it.
struct alignas(64) Offer {
  std::atomic<uint64_t> begun;   ///< messages so far, the present one among them
  std::atomic<uint64_t> posted;  ///< pieces of all messages that lie in the ring or did
  uint64_t count;
  int32_t dtype;
  uint64_t ring;         ///< offset of the first piece in the sender's stage
  uint64_t piece_bytes;  ///< of each but the last of a message
};

/// The same lane, written by the receiver.
struct alignas(64) Want {
  std::atomic<uint64_t> begun;
  std::atomic<uint64_t> taken;  ///< pieces of all messages that the receiver has
  struct Wanted {
    uint64_t count;
    int32_t dtype;
  };
  /// Of message n at n % 2: a receiver that has message n begins the next one while the sender may still look at n.
  std::array<Wanted, 2> wanted;
};

/// Any thread may ring, leave and mark; one thread at a time does the rest.
class Mailbox {
 public:
  /// The processors see memory of the carrier that other processes map.
  static bool is_there(const Called& carrier);

  /// One on every rank, or NULL on every rank.
  static std::unique_ptr<Mailbox> agree(const Called& carrier, const Place& place, const Gather& gather);
  Mailbox(const Called& carrier, int32_t rank, int32_t world_size);

  [[nodiscard]] Offer& offer(int32_t from, int32_t to) const;
  [[nodiscard]] Want& want(int32_t from, int32_t to) const;

  /// `rank` looks again; `rank` may be this one.
  void ring(int32_t rank) const;
  void ring_all() const;
  /// Changes when this rank is rung.
  [[nodiscard]] uint32_t bell() const { return head(rank_).bell.load(); }
  /// Until the bell is no longer `seen`; a few milliseconds at most, for there are ends that nobody rings for.
  void await_ring(uint32_t seen) const;

  /// The native collectives carry out one more call: of all ranks, or a message.
  void count_collective() const { head(rank_).collectives.fetch_add(1); }
  void count_message(bool is_send, int32_t peer) const;

  /// How a rank has left: with all that it called ended, in the middle of that, or after a failure that it reported.
  enum class Left : uint32_t { kNot, kDone, kUndone, kFailed };
  /// This rank will call nothing more. Rings all others, once.
  void leave(Left how);
  [[nodiscard]] bool has_left() const { return has_left_.load(); }
  [[nodiscard]] bool has_left(int32_t rank) const { return head(rank).left.load() != Left::kNot; }
  struct Missing {
    int32_t rank;
    int32_t by;  ///< a rank that needs it, maybe this one
  };
  /// A rank that left in the middle of counted calls, or before one of this rank's that needs it; the others are told.
  /// Or one that another rank has told of. Nothing when this rank has left.
  [[nodiscard]] std::optional<Missing> missing() const;
  /// Says that this rank has seen calls that do not fit together.
  void mark_mismatch() const { head(rank_).has_mismatch.store(1); }
  /// A rank that has, or -1: there is none, or this rank has left.
  [[nodiscard]] int32_t mismatch() const;

  /// As of PeerMemory; nobody rings any more.
  void let_go() { memory_.let_go(); }
  [[nodiscard]] bool is_let_go() const { return memory_.is_let_go(); }

 private:
  struct alignas(64) Head {
    std::atomic<uint32_t> bell;
    std::atomic<uint32_t> listens;
    std::atomic<Left> left;
    std::atomic<uint32_t> has_mismatch;
    std::atomic<uint64_t> collectives;  ///< counted ones so far
    std::atomic<int32_t> misses;        ///< a rank, counted from 1; 0 is none
  };
  /// A head, an offer to each rank, a want from each.
  static uint64_t bytes_for(int32_t world_size);
  [[nodiscard]] bool is_missing(int32_t rank) const;
  [[nodiscard]] Head& head(int32_t rank) const { return *reinterpret_cast<Head*>(memory_.stage(rank)); }
  [[nodiscard]] std::byte* lanes(int32_t rank) const { return memory_.stage(rank) + sizeof(Head); }

  const int32_t rank_;
  const int32_t world_size_;
  std::atomic<bool> has_left_{false};
  PeerMemory memory_;
};

}  // namespace pliant::collectives
