// PieceTable: the pieces of an array that lies with several ranks, as gather_pieces and scatter_pieces take them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "pliant/abi/collectives.h"

namespace pliant::sdk {

/// Counts are in elements. What is packed has the pieces of one rank, one after another. Neighbours of one rank count
/// as one piece, empty ones as none. Immutable.
class PieceTable {
 public:
  struct Piece {
    uint64_t packed = 0;  ///< where it begins among the packed pieces of its rank
    uint64_t offset = 0;  ///< where it begins in the array
    uint64_t count = 0;   ///< at least 1
    [[nodiscard]] uint64_t end() const { return offset + count; }
  };

  /// `pieces` are ascending and disjoint, their ranks those of a communicator of `world_size`. O(pieces + ranks).
  PieceTable(std::span<const pliant_piece> pieces, int32_t world_size) : ranks_(static_cast<size_t>(world_size)) {
    for (const pliant_piece& one : pieces) {
      if (one.count != 0) ++ranks_[at(one.rank)].end;
    }
    size_t begin = 0;
    for (OfRank& rank : ranks_) {
      begin += rank.end;
      rank.begin = rank.end = begin - rank.end;
    }
    pieces_.resize(begin);
    for (const pliant_piece& one : pieces) add(one);
  }
  /// That of all_gather_v: counts[r] elements of rank r, in rank order.
  static PieceTable in_rank_order(std::span<const uint64_t> counts) {
    std::vector<pliant_piece> pieces;
    uint64_t offset = 0;
    for (const uint64_t count : counts) {
      pieces.push_back({static_cast<int32_t>(pieces.size()), 0, offset, count});
      offset += count;
    }
    return {pieces, static_cast<int32_t>(counts.size())};
  }

  [[nodiscard]] int32_t world_size() const { return static_cast<int32_t>(ranks_.size()); }
  /// Ascending.
  [[nodiscard]] std::span<const Piece> of(int32_t rank) const {
    const OfRank& those = ranks_[at(rank)];
    return {pieces_.data() + those.begin, those.end - those.begin};
  }
  /// Elements of one rank.
  [[nodiscard]] uint64_t owned(int32_t rank) const { return ranks_[at(rank)].owned; }
  [[nodiscard]] uint64_t most_owned() const {
    uint64_t most = 0;
    for (const OfRank& one : ranks_) most = std::max(most, one.owned);
    return most;
  }
  /// Elements of all ranks.
  [[nodiscard]] uint64_t total() const { return total_; }
  /// Behind the last element of the array that a piece names.
  [[nodiscard]] uint64_t end() const { return end_; }
  /// All of them, ascending. O(pieces log(pieces)).
  [[nodiscard]] std::vector<pliant_piece> ascending() const {
    std::vector<pliant_piece> all;
    for (int32_t rank = 0; rank < world_size(); ++rank) {
      for (const Piece& one : of(rank)) all.push_back({rank, 0, one.offset, one.count});
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
    return all;
  }
  /// The same for equal tables, and as good as never for others.
  [[nodiscard]] uint64_t digest() const {
    uint64_t hash = ranks_.size();
    const auto mix = [&hash](uint64_t word) {
      hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
      hash ^= hash >> 29U;
    };
    for (int32_t rank = 0; rank < world_size(); ++rank) {
      mix(owned(rank));
      for (const Piece& one : of(rank)) {
        mix(one.offset);
        mix(one.count);
      }
    }
    return hash;
  }

  /// see(Piece) for all of elements first .. first + count of what `rank` has packed, cut where they do not lie side by
  /// side in the array. O(log(pieces of the rank) + pieces seen).
  template <class See>
  void each(int32_t rank, uint64_t first, uint64_t count, See&& see) const {
    if (count == 0) return;
    const std::span<const Piece> all = of(rank);
    auto one = std::upper_bound(all.begin(), all.end(), first,
                                [](uint64_t packed, const Piece& piece) { return packed < piece.packed; });
    if (one != all.begin()) --one;
    for (const uint64_t end = first + count; one != all.end() && one->packed < end; ++one) {
      const uint64_t skipped = std::max(first, one->packed) - one->packed;
      if (skipped >= one->count) continue;
      see(Piece{one->packed + skipped, one->offset + skipped,
                std::min(one->count - skipped, end - one->packed - skipped)});
    }
  }

 private:
  struct OfRank {
    size_t begin = 0;  ///< in pieces_
    size_t end = 0;
    uint64_t owned = 0;
  };
  static size_t at(int32_t rank) { return static_cast<size_t>(rank); }
  void add(const pliant_piece& one) {
    if (one.count == 0) return;
    OfRank& rank = ranks_[at(one.rank)];
    Piece* const before = rank.end == rank.begin ? nullptr : &pieces_[rank.end - 1];
    if (before != nullptr && before->end() == one.offset) {
      before->count += one.count;
    } else {
      pieces_[rank.end++] = {rank.owned, one.offset, one.count};
    }
    rank.owned += one.count;
    total_ += one.count;
    end_ = one.offset + one.count;
  }

  std::vector<OfRank> ranks_;
  std::vector<Piece> pieces_;  ///< by rank
  uint64_t total_ = 0;
  uint64_t end_ = 0;
};

/// Where the elements of rank `from` begin in what scatter_pieces receives, counted in the elements that are received
/// of one rank.
constexpr uint64_t place_among_others(int32_t from, int32_t own) {
  return static_cast<uint64_t>(from < own ? from : from - 1);
}

}  // namespace pliant::sdk
