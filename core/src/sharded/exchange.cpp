#include "sharded/exchange.hpp"

#include <algorithm>

namespace pliant::sharded {
namespace {

/// Element `place` of an array.
void* at(void* array, int64_t place, DType type) {
  return static_cast<char*>(array) + static_cast<uint64_t>(place) * bytes_of(type);
}
const void* at(const void* array, int64_t place, DType type) {
  return static_cast<const char*>(array) + static_cast<uint64_t>(place) * bytes_of(type);
}

}  // namespace

Exchange::Exchange(Communicator& communicator, Stream& stream)
    : communicator_(communicator),
      stream_(stream),
      rank_(communicator.rank()),
      world_size_(communicator.world_size()) {}

OwnersOfRange Exchange::owners_of(const FlatLayout& layout, const Ownership& ownership, FlatRange range) const {
  OwnersOfRange made{range, ownership.pieces_of(layout, range)};
  for (const ShardPiece& piece : made.pieces) {
    if (piece.owner != rank_) continue;
    made.own.push_back(piece);
    made.owned += static_cast<uint64_t>(piece.range.count);
  }
  made.is_in_rank_order = std::adjacent_find(made.pieces.begin(), made.pieces.end(), [](const auto& a, const auto& b) {
                            return a.owner >= b.owner;
                          }) == made.pieces.end();
  if (!made.is_in_rank_order) return made;
  made.counts.resize(static_cast<size_t>(world_size_));
  for (const ShardPiece& piece : made.pieces) {
    made.counts[static_cast<size_t>(piece.owner)] = static_cast<uint64_t>(piece.range.count);
  }
  return made;
}

void Exchange::gather_by_messages(const GatherItem& item, const void* shard, DType type) {
  for (const ShardPiece& piece : item.of->pieces) {
    const auto count = static_cast<uint64_t>(piece.range.count);
    if (piece.owner != rank_) {
      communicator_.recv(at(item.to, piece.range.first - item.of->range.first, type), count, type, piece.owner,
                         stream_);
      continue;
    }
    for (int32_t peer = 0; peer < world_size_; ++peer) {
      if (peer != rank_) communicator_.send(at(shard, piece.shard_offset, type), count, type, peer, stream_);
    }
  }
}

void Exchange::gather(std::span<const GatherItem> items, const void* shard, DType type) {
  for (const GatherItem& item : items) {
    if (world_size_ > 1 && item.of->is_in_rank_order) continue;
    for (const ShardPiece& piece : item.of->own) {
      stream_.copy(at(item.to, piece.range.first - item.of->range.first, type), at(shard, piece.shard_offset, type),
                   static_cast<uint64_t>(piece.range.count) * bytes_of(type));
    }
  }
  if (world_size_ == 1) return;
  const bool is_one = items.size() == 1 && items.front().of->is_in_rank_order;
  if (!is_one) communicator_.begin_group();
  for (const GatherItem& item : items) {
    if (item.of->is_in_rank_order) {
      const void* const from = item.of->own.empty() ? shard : at(shard, item.of->own.front().shard_offset, type);
      communicator_.all_gather_v(from, item.to, item.of->counts, type, stream_);
    } else {
      gather_by_messages(item, shard, type);
    }
  }
  if (!is_one) communicator_.end_group();
}

void Exchange::scatter(std::span<const ScatterItem> items, const std::vector<bool>& adds, DType type) {
  if (world_size_ == 1) return;
  communicator_.begin_group();
  for (const ScatterItem& item : items) {
    uint64_t done = 0;
    for (const ShardPiece& piece : item.of->pieces) {
      const auto count = static_cast<uint64_t>(piece.range.count);
      if (piece.owner != rank_) {
        if (item.addend == nullptr) continue;
        communicator_.send(at(item.addend, piece.range.first - item.of->range.first, type), count, type, piece.owner,
                           stream_);
        continue;
      }
      for (int32_t peer = 0; peer < world_size_; ++peer) {
        if (peer == rank_ || !adds[static_cast<size_t>(peer)]) continue;
        const uint64_t place = place_of(peer) * item.of->owned + done;
        communicator_.recv(at(item.received, static_cast<int64_t>(place), type), count, type, peer, stream_);
      }
      done += count;
    }
  }
  communicator_.end_group();
}

}  // namespace pliant::sharded
