// Exchange: what ranks send each other of sharded arrays: whole parameters from their owners, gradients to them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "pliant/accelerator.hpp"
#include "pliant/communicator.hpp"
#include "sharded/shards/layout.hpp"
#include "sharded/shards/ownership.hpp"

namespace pliant::sharded {

/// Who owns which part of a range of the flat space: what a gather and a scatter of it go by.
struct OwnersOfRange {
  FlatRange range;
  std::vector<ArrayPiece> pieces{};  ///< all of the range, counted from its begin
  std::vector<ShardPiece> own{};     ///< those of this rank; they lie side by side in its shard
  uint64_t owned = 0;                ///< elements in them
};

/// "f32" or "bf16", as [coordinator] has them.
inline DType dtype_of(std::string_view word) {
  return word == "bf16" ? DType::kBF16 : DType::kF32;
}

/// Bytes of an element: what is exchanged is f32 or bf16.
constexpr uint64_t bytes_of(DType type) {
  return type == DType::kF32 ? 4 : 2;
}

/// A range that becomes whole at `to`.
struct GatherItem {
  const OwnersOfRange* of = nullptr;
  void* to = nullptr;
};

/// A range of which this rank has an addend, or none, for its owners.
struct ScatterItem {
  const OwnersOfRange* of = nullptr;
  const void* addend = nullptr;
  /// Room for the addends of the other ranks to what this rank owns of the range, rank after rank: (world size - 1) *
  /// owned elements.
  void* received = nullptr;
};

/// Calls enqueue and return; all ranks make the same ones in one order. One thread. The communicator and the stream
/// outlive this.
class Exchange {
 public:
  Exchange(Communicator& communicator, Stream& stream);

  [[nodiscard]] int32_t rank() const { return rank_; }
  [[nodiscard]] int32_t world_size() const { return world_size_; }
  /// O(log(runs) + pieces).
  [[nodiscard]] OwnersOfRange owners_of(const FlatLayout& layout, const Ownership& ownership, FlatRange range) const;

  /// One collective, straight from the owners' shards to where it belongs. O(items and their pieces).
  void gather(std::span<const GatherItem> items, const void* shard, DType type);
  /// One collective. `adds[r]`: rank r has an addend. O(items and their pieces).
  void scatter(std::span<const ScatterItem> items, const std::vector<bool>& adds, DType type);
  /// Where `received` has what rank `from` sent.
  [[nodiscard]] uint64_t place_of(int32_t from) const { return static_cast<uint64_t>(from < rank_ ? from : from - 1); }

 private:
  Communicator& communicator_;
  Stream& stream_;
  int32_t rank_;
  int32_t world_size_;
};

}  // namespace pliant::sharded
