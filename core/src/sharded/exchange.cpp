#include "sharded/exchange.hpp"

#include <algorithm>

namespace pliant::sharded {
namespace {

bool is_in_rank_order(std::span<const ShardPiece> pieces) {
  return std::adjacent_find(pieces.begin(), pieces.end(), [](const ShardPiece& a, const ShardPiece& b) {
           return a.owner >= b.owner;
         }) == pieces.end();
}

}  // namespace

Exchange::Exchange(Communicator& communicator, Stream& stream, const ShardLayout& layout, const Ownership& ownership)
    : communicator_(communicator),
      stream_(stream),
      layout_(layout),
      ownership_(ownership),
      rank_(communicator.rank()),
      world_size_(communicator.world_size()) {}

std::vector<ShardPiece> Exchange::owned_pieces(FlatRange range) const {
  std::vector<ShardPiece> pieces = ownership_.pieces_of(layout_, range);
  std::erase_if(pieces, [this](const ShardPiece& piece) { return piece.owner != rank_; });
  return pieces;
}

uint64_t Exchange::owned(FlatRange range) const {
  uint64_t count = 0;
  for (const ShardPiece& piece : owned_pieces(range)) count += static_cast<uint64_t>(piece.range.count);
  return count;
}

void Exchange::gather_in_order(const GatherItem& item, std::span<const ShardPiece> pieces, const float* shard) {
  std::vector<uint64_t> counts(static_cast<size_t>(world_size_));
  const float* from = shard;
  for (const ShardPiece& piece : pieces) {
    counts[static_cast<size_t>(piece.owner)] = static_cast<uint64_t>(piece.range.count);
    if (piece.owner == rank_) from = shard + piece.shard_offset;
  }
  communicator_.all_gather_v(from, item.to, counts, DType::kF32, stream_);
}

void Exchange::gather_by_messages(const GatherItem& item, std::span<const ShardPiece> pieces, const float* shard) {
  for (const ShardPiece& piece : pieces) {
    const auto count = static_cast<uint64_t>(piece.range.count);
    if (piece.owner != rank_) {
      communicator_.recv(item.to + (piece.range.first - item.range.first), count, DType::kF32, piece.owner, stream_);
      continue;
    }
    for (int32_t peer = 0; peer < world_size_; ++peer) {
      if (peer != rank_) communicator_.send(shard + piece.shard_offset, count, DType::kF32, peer, stream_);
    }
  }
}

void Exchange::gather(std::span<const GatherItem> items, const float* shard) {
  std::vector<std::vector<ShardPiece>> pieces;
  for (const GatherItem& item : items) {
    pieces.push_back(ownership_.pieces_of(layout_, item.range));
    if (world_size_ > 1 && is_in_rank_order(pieces.back())) continue;
    for (const ShardPiece& piece : pieces.back()) {
      if (piece.owner != rank_) continue;
      stream_.copy(item.to + (piece.range.first - item.range.first), shard + piece.shard_offset,
                   static_cast<uint64_t>(piece.range.count) * sizeof(float));
    }
  }
  if (world_size_ == 1) return;
  const bool is_one = items.size() == 1 && is_in_rank_order(pieces.front());
  if (!is_one) communicator_.begin_group();
  for (size_t i = 0; i < items.size(); ++i) {
    if (is_in_rank_order(pieces[i])) {
      gather_in_order(items[i], pieces[i], shard);
    } else {
      gather_by_messages(items[i], pieces[i], shard);
    }
  }
  if (!is_one) communicator_.end_group();
}

void Exchange::scatter(std::span<const ScatterItem> items, const std::vector<bool>& adds) {
  if (world_size_ == 1) return;
  communicator_.begin_group();
  for (const ScatterItem& item : items) {
    const std::vector<ShardPiece> pieces = ownership_.pieces_of(layout_, item.range);
    uint64_t owned = 0;
    for (const ShardPiece& piece : pieces) {
      if (piece.owner == rank_) owned += static_cast<uint64_t>(piece.range.count);
    }
    uint64_t done = 0;
    for (const ShardPiece& piece : pieces) {
      const auto count = static_cast<uint64_t>(piece.range.count);
      if (piece.owner != rank_) {
        if (item.addend == nullptr) continue;
        communicator_.send(item.addend + (piece.range.first - item.range.first), count, DType::kF32, piece.owner,
                           stream_);
        continue;
      }
      for (int32_t peer = 0; peer < world_size_; ++peer) {
        if (peer == rank_ || !adds[static_cast<size_t>(peer)]) continue;
        communicator_.recv(item.received + place_of(peer) * owned + done, count, DType::kF32, peer, stream_);
      }
      done += count;
    }
  }
  communicator_.end_group();
}

}  // namespace pliant::sharded
