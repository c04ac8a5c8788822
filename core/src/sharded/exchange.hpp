// Exchange: what ranks send each other of sharded arrays: whole parameters from their owners, gradients to them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pliant/accelerator.hpp"
#include "pliant/communicator.hpp"
#include "sharded/layout.hpp"
#include "sharded/ownership.hpp"

namespace pliant::sharded {

/// A range of the flat space that becomes whole at `to`.
struct GatherItem {
  FlatRange range;
  float* to = nullptr;
};

/// A range of the flat space, of which this rank has an addend, or none, for its owners.
struct ScatterItem {
  FlatRange range;
  const float* addend = nullptr;
  /// Room for the addends of the other ranks to what this rank owns of the range, rank after rank: (world size - 1) *
  /// owned() floats.
  float* received = nullptr;
};

/// Calls enqueue and return; all ranks make the same ones in one order. One thread. The communicator and the stream
/// outlive this.
class Exchange {
 public:
  Exchange(Communicator& communicator, Stream& stream, const ShardLayout& layout, const Ownership& ownership);

  [[nodiscard]] int32_t rank() const { return rank_; }
  [[nodiscard]] int32_t world_size() const { return world_size_; }
  /// Elements of the range that this rank owns. O(pieces).
  [[nodiscard]] uint64_t owned(FlatRange range) const;
  /// The pieces of the range that this rank owns, ascending.
  [[nodiscard]] std::vector<ShardPiece> owned_pieces(FlatRange range) const;

  /// One collective. Straight from the owners' shards to where it belongs: a range whose owners lie in it in rank order
  /// by one all-gather, any other by a message for each piece.
  void gather(std::span<const GatherItem> items, const float* shard);
  /// One collective. `adds[r]`: rank r has an addend.
  void scatter(std::span<const ScatterItem> items, const std::vector<bool>& adds);
  /// Where `received` has what rank `from` sent.
  [[nodiscard]] uint64_t place_of(int32_t from) const { return static_cast<uint64_t>(from < rank_ ? from : from - 1); }

 private:
  void gather_in_order(const GatherItem& item, std::span<const ShardPiece> pieces, const float* shard);
  void gather_by_messages(const GatherItem& item, std::span<const ShardPiece> pieces, const float* shard);

  Communicator& communicator_;
  Stream& stream_;
  const ShardLayout& layout_;
  const Ownership& ownership_;
  int32_t rank_;
  int32_t world_size_;
};

}  // namespace pliant::sharded
