#include "sharded/shards/exchange.hpp"

namespace pliant::sharded {
namespace {

/// Element `place` of an array.
const void* at(const void* array, int64_t place, DType type) {
  return static_cast<const char*>(array) + static_cast<uint64_t>(place) * bytes_of(type);
}

/// As one piece of work.
template <class Items, class Call>
void in_group(Communicator& communicator, const Items& items, Call&& call) {
  if (items.size() > 1) communicator.begin_group();
  for (const auto& item : items) call(item);
  if (items.size() > 1) communicator.end_group();
}

}  // namespace

Exchange::Exchange(Communicator& communicator, Stream& stream)
    : communicator_(communicator),
      stream_(stream),
      rank_(communicator.rank()),
      world_size_(communicator.world_size()) {}

OwnersOfRange Exchange::owners_of(const FlatLayout& layout, const Ownership& ownership, FlatRange range) const {
  OwnersOfRange made{range};
  for (const ShardPiece& piece : ownership.pieces_of(layout, range)) {
    const auto count = static_cast<uint64_t>(piece.range.count);
    const auto offset = static_cast<uint64_t>(piece.range.first - range.first);
    if (!made.pieces.empty() && made.pieces.back().rank == piece.owner) {
      made.pieces.back().count += count;  // the collectives count neighbours of one rank as one piece
    } else {
      made.pieces.push_back({piece.owner, offset, count});
    }
    if (piece.owner != rank_) continue;
    made.own.push_back(piece);
    made.owned += count;
  }
  return made;
}

void Exchange::gather(std::span<const GatherItem> items, const void* shard, DType type) {
  in_group(communicator_, items, [&](const GatherItem& item) {
    const std::vector<ShardPiece>& own = item.of->own;
    const void* const from = own.empty() ? nullptr : at(shard, own.front().shard_offset, type);
    communicator_.gather_pieces(from, item.to, item.of->pieces, type, stream_);
  });
}

void Exchange::scatter(std::span<const ScatterItem> items, const std::vector<bool>& adds, DType type) {
  if (world_size_ == 1) return;
  in_group(communicator_, items, [&](const ScatterItem& item) {
    communicator_.scatter_pieces(item.addend, item.received, item.of->pieces, adds, type, stream_);
  });
}

}  // namespace pliant::sharded
