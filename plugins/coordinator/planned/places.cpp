#include "places.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "layout.hpp"

namespace pliant::coordinator::planned {
namespace {

/// In all orders together.
constexpr uint64_t kLooksOfPiece = 128;
constexpr uint64_t kFewestLooks = uint64_t{1} << 14U;
/// Of one order.
constexpr int kTries = 8;
/// Time is cut into blocks of about as many pieces that begin there.
constexpr size_t kPiecesOfBlock = 8;

class Arena {
 public:
  Arena(const std::vector<Piece>& pieces, uint64_t top, uint64_t most_looks)
      : pieces_(pieces), top_(top), most_looks_(most_looks) {
    size_t end = 0;
    for (const Piece& one : pieces) end = std::max(end, one.end);
    blocks_.resize(pieces.size() / kPiecesOfBlock + 1);
    length_ = end / blocks_.size() + 1;
  }

  /// The pieces with a place, then these in turn. `stuck`: the one that finds none.
  bool place(const std::vector<uint32_t>& order, bool by_wish, uint32_t& stuck) {
    for (std::vector<uint32_t>& block : blocks_) block.clear();
    places_.assign(pieces_.size(), PLIANT_ANY_PLACE);
    for (uint32_t i = 0; i < pieces_.size(); ++i) {
      if (pieces_[i].place != PLIANT_ANY_PLACE) put(i, pieces_[i].place);
    }
    for (const uint32_t one : order) {
      const std::optional<uint64_t> found = lowest_for(pieces_[one], by_wish);
      stuck = one;
      if (!found) return false;
      put(one, *found);
    }
    return true;
  }
  [[nodiscard]] bool is_tired() const { return looks_ > most_looks_; }
  [[nodiscard]] uint64_t looks() const { return looks_; }
  [[nodiscard]] uint64_t place_of(uint32_t piece) const { return places_[piece]; }

 private:
  [[nodiscard]] size_t block_of(size_t moment) const { return moment / length_; }

  void put(uint32_t piece, uint64_t place) {
    places_[piece] = place;
    const Piece& one = pieces_[piece];
    for (size_t block = block_of(one.begin); block <= block_of(one.end - 1); ++block, ++looks_) {
      blocks_[block].push_back(piece);
    }
  }

  /// Or its wish.
  std::optional<uint64_t> lowest_for(const Piece& piece, bool by_wish) {
    met_.clear();
    for (size_t block = block_of(piece.begin); block <= block_of(piece.end - 1); ++block) {
      looks_ += blocks_[block].size() + 1;
      if (is_tired()) return std::nullopt;
      for (const uint32_t other : blocks_[block]) {
        const Piece& one = pieces_[other];
        const bool meets = one.begin < piece.end && piece.begin < one.end;
        const bool is_new = block == std::max(block_of(one.begin), block_of(piece.begin));
        if (meets && is_new) met_.emplace_back(places_[other], places_[other] + one.bytes);
      }
    }
    std::sort(met_.begin(), met_.end());
    std::optional<uint64_t> lowest;
    uint64_t free = 0;  // from here on
    bool has_wish = by_wish && piece.wish != PLIANT_ANY_PLACE && piece.wish + piece.bytes <= top_;
    for (const auto& [begin, end] : met_) {
      if (!lowest && begin >= free + piece.bytes) lowest = free;
      has_wish = has_wish && (end <= piece.wish || begin >= piece.wish + piece.bytes);
      free = std::max(free, end);
    }
    if (has_wish) return piece.wish;
    if (!lowest && free <= top_ && piece.bytes <= top_ - free) lowest = free;
    return lowest && *lowest + piece.bytes <= top_ ? lowest : std::nullopt;
  }

  const std::vector<Piece>& pieces_;
  const uint64_t top_;
  const uint64_t most_looks_;
  uint64_t looks_ = 0;
  size_t length_ = 1;                               ///< moments of a block
  std::vector<std::vector<uint32_t>> blocks_;       ///< by block, what lies there in a part of it
  std::vector<uint64_t> places_;                    ///< by piece
  std::vector<std::pair<uint64_t, uint64_t>> met_;  ///< in lowest_for()
};

enum class Order { kWish, kSize, kLength, kBoth };

std::vector<uint32_t> in_order(const std::vector<Piece>& pieces, Order order) {
  std::vector<uint32_t> made;
  for (uint32_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].place == PLIANT_ANY_PLACE) made.push_back(i);
  }
  const auto weight = [&](uint32_t i) -> std::pair<bool, Wide> {
    const Piece& one = pieces[i];
    const Wide length = one.end - one.begin;
    const bool has_wish = order == Order::kWish && one.wish != PLIANT_ANY_PLACE;
    if (order == Order::kLength) return {has_wish, length};
    return {has_wish, order == Order::kBoth ? one.bytes * length : one.bytes};
  };
  std::sort(made.begin(), made.end(), [&](uint32_t a, uint32_t b) {
    if (pieces[a].is_first != pieces[b].is_first) return pieces[a].is_first;
    const auto of_a = weight(a);
    const auto of_b = weight(b);
    const bool by_time = pieces[a].is_first || of_a == of_b;
    return by_time ? std::pair(pieces[a].begin, a) < std::pair(pieces[b].begin, b) : of_a > of_b;
  });
  return made;
}

}  // namespace

bool find_places(std::vector<Piece>& pieces, uint64_t top, uint64_t& looked_at) {
  Arena arena(pieces, top, kLooksOfPiece * pieces.size() + kFewestLooks);
  const bool has_wishes =
      std::any_of(pieces.begin(), pieces.end(), [](const Piece& one) { return one.wish != PLIANT_ANY_PLACE; });
  bool has_places = false;
  for (const Order order : {Order::kWish, Order::kSize, Order::kLength, Order::kBoth}) {
    if (order == Order::kWish && !has_wishes) continue;
    std::vector<uint32_t> turns = in_order(pieces, order);
    for (int i = 0; i < kTries && !has_places && !arena.is_tired(); ++i) {
      uint32_t stuck = 0;
      has_places = arena.place(turns, order == Order::kWish, stuck);
      if (has_places) break;
      const auto at = std::find(turns.begin(), turns.end(), stuck);
      if (at == turns.begin()) break;  // it meets what has its place
      std::rotate(turns.begin(), at, at + 1);
    }
    if (has_places) break;
  }
  looked_at += arena.looks();
  if (!has_places) return false;
  for (uint32_t i = 0; i < pieces.size(); ++i) pieces[i].place = arena.place_of(i);
  return true;
}

}  // namespace pliant::coordinator::planned
