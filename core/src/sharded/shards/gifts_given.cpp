// Gifts: cut from the runs of those who give.
#include <algorithm>
#include <bit>
#include <utility>

#include "sharded/shards/gifts.hpp"

namespace pliant::sharded {

namespace {

constexpr int64_t kParts = 1024;  // of a chunk

/// How much more a rank has of a segment than will be its part, in 1/kParts of a chunk.
int64_t spare_of(int64_t owns, int64_t keeps, int64_t segment, int64_t chunks) {
  return std::max<int64_t>(0, owns * kParts - keeps * segment * kParts / chunks);
}

/// What one rank gives: segment by segment, then, of what it has left, what is still missing.
class Giving {
 public:
  Giving(const Giver& giver, std::span<const int64_t> scales, const Cutting& cutting, std::vector<Gift>& gifts)
      : giver_(giver), scales_(scales), cutting_(cutting), grain_(static_cast<int32_t>(cutting.grain)), gifts_(gifts) {}

  void add() {
    take_apart();
    // In rounding, each rank is ahead of the one before: else segments that lie side by side would go to few.
    const int64_t run =
        std::max<int64_t>(1, giver_.has / static_cast<int64_t>(std::max<size_t>(giver_.runs.size(), 1)));
    const int64_t ahead = std::min<int64_t>(run, grain_) * kParts * giver_.rank / giver_.world_size;
    int64_t spare = 0;
    for (const Part& part : parts_) {
      spare += part.spare;
      if (spare == 0) continue;
      const int64_t due = (spare * giver_.surplus * kParts + spare_ * ahead) / (spare_ * kParts);
      give_of(part, std::min(due, giver_.surplus));
    }
    for (; given_ < giver_.surplus; left_.pop_back()) {
      give(left_.back(), static_cast<int32_t>(std::min<int64_t>(giver_.surplus - given_, left_.back().chunks.count)));
    }
  }

 private:
  /// What it has of one segment: pieces_[begin] to pieces_[end].
  struct Part {
    ChunkRange segment;
    size_t begin = 0;
    size_t end = 0;
    int64_t spare = 0;  ///< the weight of what it has more than will be its part
  };

  void take_apart() {
    pieces_.reserve(giver_.runs.size());
    for (const Giver::Run& run : giver_.runs) {
      for (ChunkRange rest = run.chunks; rest.count > 0;) {
        if (parts_.empty() || begin_of(rest) >= end_of(parts_.back().segment)) {
          parts_.push_back({segment_of(cutting_, begin_of(rest)), pieces_.size(), 0, 0});
        }
        Part& part = parts_.back();
        // A run may lie in several segments; its piece of each is cut off where that makes no short one.
        int32_t count = std::min(rest.count, std::max(end_of(part.segment) - begin_of(rest), grain_));
        if (rest.count - count < grain_) count = rest.count;
        pieces_.push_back({taken_from_front(rest, count), run.gives_front});
        part.end = pieces_.size();
        part.spare += count;
      }
    }
    const int64_t keeps = giver_.has - giver_.surplus;
    for (Part& part : parts_) {
      const int64_t scale = keeps == 0 ? 1 : scales_[segment_at(cutting_, begin_of(part.segment))];
      part.spare = scale * spare_of(part.spare, keeps, part.segment.count, cutting_.chunks);
      spare_ += part.spare;
    }
    // Sums times surpluses keep within 64 bits.
    const int shift = std::max(0, static_cast<int>(std::bit_width(static_cast<uint64_t>(spare_))) - 30);
    spare_ = 0;
    for (Part& part : parts_) spare_ += part.spare >>= shift;
  }

  void give(Giver::Run& piece, int32_t count) {
    gifts_.push_back({piece.gives_front ? taken_from_front(piece.chunks, count) : taken_from_back(piece.chunks, count),
                      giver_.rank});
    given_ += count;
  }

  void give_of(const Part& part, int64_t due) {
    const auto pieces = std::span(pieces_).subspan(part.begin, part.end - part.begin);
    std::sort(pieces.begin(), pieces.end(), [](const Giver::Run& left, const Giver::Run& right) {
      return std::pair(left.chunks.count, left.chunks.first) < std::pair(right.chunks.count, right.chunks.first);
    });
    for (Giver::Run& piece : pieces) {
      const int64_t more = due - given_;
      if (piece.chunks.count <= more) {
        give(piece, piece.chunks.count);
      } else if (more >= grain_) {
        give(piece, static_cast<int32_t>(more));
      }
      if (piece.chunks.count > 0) left_.push_back(piece);
    }
  }

  const Giver& giver_;
  const std::span<const int64_t> scales_;
  const Cutting& cutting_;
  const int32_t grain_;
  std::vector<Gift>& gifts_;
  std::vector<Part> parts_;
  std::vector<Giver::Run> pieces_;
  std::vector<Giver::Run> left_;  ///< of segments that are done
  int64_t spare_ = 0;
  int64_t given_ = 0;
};

}  // namespace

std::vector<int64_t> scales_of(std::span<const Giver> givers, const std::vector<int32_t>& needs, const Ownership& from,
                               std::span<const int32_t> new_rank_of, const Cutting& cutting) {
  constexpr int64_t kOne = 64;  // what those who give can spare is what those who get lack
  constexpr int64_t kMost = kOne * kOne;
  std::vector<int64_t> scales;
  std::vector<int64_t> owns(new_rank_of.size());
  std::vector<int32_t> getters(new_rank_of.size(), -1);  // by their old ranks
  for (size_t old = 0; old < new_rank_of.size(); ++old) {
    const int32_t rank = new_rank_of[old];
    if (rank != kLeaves && needs[static_cast<size_t>(rank)] > 0) getters[old] = rank;
  }
  const auto those_who_get = std::count_if(needs.begin(), needs.end(), [](int32_t chunks) { return chunks > 0; });
  const auto who_had_none =
      those_who_get - std::count_if(getters.begin(), getters.end(), [](int32_t rank) { return rank >= 0; });
  size_t run = 0;
  for (int32_t begin = 0; begin < cutting.chunks;) {
    const ChunkRange segment = segment_of(cutting, begin);
    std::fill(owns.begin(), owns.end(), 0);
    run = each_piece(from, segment, run,
                     [&](int32_t owner, int32_t count) { owns[static_cast<size_t>(owner)] += count; });
    const int64_t even = segment.count * kParts / static_cast<int64_t>(needs.size());
    int64_t lacks = who_had_none * even;
    for (size_t old = 0; old < owns.size(); ++old) {
      if (getters[old] >= 0) lacks += std::max<int64_t>(0, even - owns[old] * kParts);
    }
    int64_t spare = 0;
    for (const Giver& giver : givers) {
      const int64_t keeps = giver.has - giver.surplus;
      const int64_t has = owns[static_cast<size_t>(giver.rank)];
      if (keeps == 0) {
        lacks -= has * kParts;
      } else {
        spare += spare_of(has, keeps, segment.count, cutting.chunks);
      }
    }
    scales.resize(segment_at(cutting, begin) + 1);
    scales.back() = spare == 0 ? kOne : std::clamp<int64_t>(lacks * kOne / spare, 1, kMost);
    begin = end_of(segment);
  }
  return scales;
}

void add_gifts(const Giver& giver, std::span<const int64_t> scales, const Cutting& cutting, std::vector<Gift>& gifts) {
  Giving(giver, scales, cutting, gifts).add();
}

}  // namespace pliant::sharded
