// Segment: the shared memory of one communicator. It has no name in any file system: the id says in which process and
// under which descriptor the others find it, so nothing is left behind however a process ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/processes/process.hpp"
#include "pliant/abi/collectives.h"

namespace pliant::accelerator {

/// How far a rank has come, counted in ticks since the communicator began. A tick moves one chunk.
enum class Stage : uint32_t { kPosted = 0, kReduced = 1, kTaken = 2 };
constexpr uint32_t kStages = 3;

/// Chunks of one rank that may be under way at once.
constexpr uint64_t kSlots = 4;

/// Chunks of messages of one rank that may be under way at once.
constexpr uint64_t kLaneSlots = 2;

/// Rises whenever what stands in the memory, or what the ranks do with it, changes: processes of different builds must
/// not share it.
constexpr uint32_t kSegmentLayout = 4;

enum RankState : uint32_t { kIsPresent = 0, kHasLeft = 1 };

/// What each rank shows to the others. Written by its owner, except for `doorbell`, which anyone rings, and `awaits`,
/// which whoever rings for it sets to 0.
struct RankBlock {
  alignas(64) std::atomic<uint64_t> claim;     ///< ProcessId::packed of the owner; 0 = has not joined
  std::atomic<uint32_t> state;                 ///< RankState
  alignas(64) std::atomic<uint32_t> doorbell;  ///< futex: every wait of the owner sleeps here
  std::atomic<uint64_t> awaits;                ///< what the owner sleeps for, Group::encode; 0 = nothing
  std::atomic<uint32_t> listens;               ///< the owner sleeps until something happens to one of its lanes
  alignas(64) std::atomic<uint64_t> progress[kStages];
  std::atomic<int32_t> processor;  ///< on which the owner last made progress, counted from 1; 0: not known
};

/// Says which collective a slot belongs to; equal on all ranks but for `source`, or they called different things.
struct alignas(64) CallRecord {
  uint64_t count;
  uint64_t history;  ///< digest of all calls before
  int32_t kind;
  int32_t dtype;
  int32_t op;
  int32_t root;
  uint64_t place;   ///< Places::common
  uint64_t source;  ///< Places::source; may differ between ranks
};

/// What one rank sends to another.
struct alignas(64) Lane {
  std::atomic<uint64_t> wanted;  ///< messages that the receiver has begun to wait for
  std::atomic<uint64_t> posted;  ///< chunks that the sender has put into slots
  std::atomic<uint64_t> taken;   ///< chunks that the receiver has taken out
  // Of the sender, valid from the first chunk of a message until the next is wanted.
  uint64_t count;
  int32_t dtype;
  uint32_t slots[kLaneSlots];  ///< chunk n is in slots[n % kLaneSlots]
  // By the clock of a test double: when the two sides could begin the message.
  uint64_t sender_ready_ns;
  uint64_t receiver_ready_ns;  ///< of the receiver, valid from `wanted` on until the message is taken
};

/// A view of the id's bytes.
struct SegmentId {
  uint32_t magic;
  int32_t world_size;
  uint64_t process;  ///< ProcessId::packed of the maker
  uint64_t pid_space;
  int32_t fd;       ///< in the maker; -1: one rank, nothing is shared
  uint32_t layout;  ///< kSegmentLayout of the maker
  uint64_t chunk_bytes;
  uint64_t nonce[2];

  /// The id was made by Segment::reserve, of whatever release.
  static bool is_one(const pliant_comm_id& id);
};
static_assert(sizeof(SegmentId) <= sizeof(pliant_comm_id));

class Segment {
 public:
  /// Reserves the memory of a communicator, all of it, and fills in `id`. The descriptor must stay open until all ranks
  /// have opened it. Throws Failure(PLIANT_RESOURCE_EXHAUSTED), which leaves nothing behind.
  static UniqueFd reserve(int32_t world_size, uint64_t chunk_bytes, pliant_comm_id& id);

  /// Maps what `id` names. Throws PLIANT_INVALID_ARGUMENT for an id that is none of ours or of another world size,
  /// PLIANT_FAILED_PRECONDITION for one of another layout, PLIANT_PEER_LOST when its maker is gone.
  Segment(const pliant_comm_id& id, int32_t world_size);
  /// Memory of this process alone, into which a link writes what the other ranks write into theirs; the offsets are the
  /// same on all ranks of the same numbers. Throws PLIANT_RESOURCE_EXHAUSTED.
  Segment(int32_t world_size, uint64_t chunk_bytes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  static SegmentId read(const pliant_comm_id& id);

  [[nodiscard]] ProcessId maker() const { return maker_; }
  [[nodiscard]] uint64_t chunk_bytes() const { return chunk_bytes_; }
  /// Why the communicator failed for everyone: FailureCause::packed of the first failure; 0 = it has not.
  [[nodiscard]] std::atomic<uint64_t>& cause() const;
  [[nodiscard]] RankBlock& rank(int32_t rank) const;
  [[nodiscard]] CallRecord& call(int32_t rank, uint64_t tick) const;
  [[nodiscard]] std::byte* slot(int32_t rank, uint64_t tick) const;
  [[nodiscard]] Lane& lane(int32_t from, int32_t to) const;
  /// 0 <= slot < kLaneSlots
  [[nodiscard]] std::byte* lane_slot(int32_t from, uint32_t slot) const;
  /// All of it.
  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  /// What is used for each rank: a reduce_scatter needs room for at least one cache line of each.
  static uint64_t rounded_chunk(uint64_t chunk_bytes, int32_t world_size);

 private:
  struct Layout;
  void map(int fd);
  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0;
  int32_t world_size_;
  uint64_t chunk_bytes_ = 0;
  ProcessId maker_;
};

}  // namespace pliant::accelerator
