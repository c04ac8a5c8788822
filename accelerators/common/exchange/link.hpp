// Link: how the ranks of a group hear of each other. Each rank writes its own part of a Segment only; a link makes that
// known to the others, and says who came, who left and who was lost. Shared memory is one link, a network another.
#pragma once

#include <cstdint>
#include <string>

#include "common/exchange/failure_cause.hpp"
#include "common/exchange/segment.hpp"

namespace pliant::accelerator {

/// Bytes of a slot.
struct ByteRange {
  uint64_t first = 0;
  uint64_t count = 0;
};

/// What of a slot a peer needs.
class Parcels {
 public:
  virtual ~Parcels() = default;
  /// False: the peer does not wait for this rank at all.
  [[nodiscard]] virtual bool concerns(int32_t peer) const = 0;
  [[nodiscard]] virtual ByteRange of(int32_t peer) const = 0;
};

/// Calls may come from any thread. What a link learns it writes into the segment before it rings.
class Link {
 public:
  virtual ~Link() = default;
  /// Begins to join and to watch. Called once, before all else. Throws PLIANT_RESOURCE_EXHAUSTED.
  virtual void start() = 0;
  /// Where the ranks meet, for words; "" where they need no place.
  [[nodiscard]] virtual std::string meeting() const { return ""; }
  /// Ends its threads; nothing is heard afterwards. Idempotent.
  virtual void stop() = 0;
  /// Own progress says that `stage` is done before `ticks`. `parcels` is NULL where nothing but that is to be known.
  virtual void published(Stage stage, uint64_t ticks, const Parcels* parcels) = 0;
  /// The own lane to `peer` has a new chunk, of so many bytes, in `slot`.
  virtual void posted(int32_t peer, uint32_t slot, uint64_t bytes) = 0;
  /// `wanted` or `taken` of the lane from `peer` has changed.
  virtual void turned(int32_t peer) = 0;
  /// The segment has a cause, which ends all waits.
  virtual void failed(FailureCause cause) = 0;
  /// The own state is kHasLeft. What was published before still arrives.
  virtual void left() = 0;
};

}  // namespace pliant::accelerator
