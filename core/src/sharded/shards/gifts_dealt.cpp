// Gifts: handed to those who get.
#include <algorithm>
#include <utility>

#include "sharded/shards/gifts.hpp"

namespace pliant::sharded {

namespace {

constexpr int32_t kNobody = -1;

/// A gift, and who owns what lies before and behind it afterwards, where that is known.
struct Offered {
  Gift gift;
  int32_t before = kNobody;
  int32_t behind = kNobody;
};

/// The gifts, ascending, with who is beside them.
std::vector<Offered> offered(const std::vector<Gift>& gifts, const Ownership& from,
                             std::span<const int32_t> new_rank_of) {
  std::vector<Offered> all;
  all.reserve(gifts.size());
  const std::vector<OwnedRun>& runs = from.runs();
  size_t at = 0;  // of the run that has the gift's first chunk
  for (size_t i = 0; i < gifts.size(); ++i) {
    const int32_t begin = begin_of(gifts[i].chunks);
    const int32_t end = end_of(gifts[i].chunks);
    while (end_of(runs[at].chunks) <= begin) ++at;
    const auto owner_afterwards = [&](size_t run) { return new_rank_of[static_cast<size_t>(runs[run].owner)]; };
    Offered one{gifts[i], kNobody, kNobody};
    if (begin > 0 && (i == 0 || end_of(gifts[i - 1].chunks) < begin)) {
      one.before = owner_afterwards(begin_of(runs[at].chunks) < begin ? at : at - 1);
    }
    if (end < from.chunks() && (i + 1 == gifts.size() || end < begin_of(gifts[i + 1].chunks))) {
      one.behind = owner_afterwards(end < end_of(runs[at].chunks) ? at : at + 1);
    }
    all.push_back(one);
  }
  return all;
}

/// Who gets which gifts.
class Dealer {
 public:
  Dealer(std::vector<Offered> gifts, const std::vector<int32_t>& needs, const Ownership& from,
         std::span<const int32_t> new_rank_of, const Cutting& cutting)
      : gifts_(std::move(gifts)),
        from_(from),
        cutting_(cutting),
        grain_(static_cast<int32_t>(cutting.grain)),
        ranks_(static_cast<int64_t>(needs.size())),
        getting_at_(new_rank_of.size(), kNobody) {
    std::vector<int32_t> at(needs.size(), kNobody);
    for (size_t rank = 0; rank < needs.size(); ++rank) {
      if (needs[rank] == 0) continue;
      at[rank] = static_cast<int32_t>(getting_.size());
      getting_.push_back({static_cast<int32_t>(rank), needs[rank]});
    }
    for (size_t old = 0; old < new_rank_of.size(); ++old) {
      if (new_rank_of[old] != kLeaves) getting_at_[old] = at[static_cast<size_t>(new_rank_of[old])];
    }
    place_of_ = std::move(at);
    moves_.reserve(gifts_.size());
  }

  std::vector<Move> deal() {
    each_segment([this](std::span<Offered>) {
      for (Getting& one : getting_) one.lacks += one.lacks_here;
    });
    each_segment([this](std::span<Offered> gifts) { deal_segment(gifts); });
    return std::move(moves_);
  }

 private:
  static constexpr int64_t kParts = 1024;

  struct Getting {
    int32_t rank = 0;
    int64_t needs = 0;       ///< chunks, still
    int64_t owns = 0;        ///< chunks of the segment
    int64_t lacks_here = 0;  ///< of the segment to have as much as others, as lacks and due in 1/kParts of a chunk
    int64_t lacks = 0;       ///< of segments that are not done
    int64_t due = 0;         ///< what it should have by now and has not; below 0: it has more
  };

  /// Calls with the gifts of each segment that has some. What those who get own of it, and lack, is known then.
  template <class Call>
  void each_segment(const Call& call) {
    size_t run = 0;
    for (size_t begin = 0; begin < gifts_.size();) {
      const ChunkRange segment = segment_of(cutting_, begin_of(gifts_[begin].gift.chunks));
      size_t behind = begin;
      while (behind < gifts_.size() && begin_of(gifts_[behind].gift.chunks) < end_of(segment)) ++behind;
      for (Getting& one : getting_) one.owns = 0;
      run = each_piece(from_, segment, run, [this](int32_t owner, int32_t count) {
        const int32_t at = getting_at_[static_cast<size_t>(owner)];
        if (at != kNobody) getting_[static_cast<size_t>(at)].owns += count;
      });
      even_ = segment.count * kParts / ranks_;
      for (Getting& one : getting_) one.lacks_here = std::max<int64_t>(0, even_ - one.owns * kParts);
      call(std::span(gifts_).subspan(begin, behind - begin));
      begin = behind;
    }
  }

  void deal_segment(std::span<Offered> gifts) {
    const size_t first_move = moves_.size();
    left_ = 0;
    for (const Offered& one : gifts) left_ += one.gift.chunks.count;
    add_due();
    for (size_t i = 0; i < gifts.size(); ++i) {
      if (i > 0 && gifts[i].before == kNobody) gifts[i].before = heir_of(gifts[i - 1], gifts[i]);
      give_beside(gifts[i]);
    }
    give_due(gifts);
    if (left_ > 0) give_rest(gifts);
    std::sort(moves_.begin() + static_cast<std::ptrdiff_t>(first_move), moves_.end(),
              [](const Move& one, const Move& other) { return one.chunks.first < other.chunks.first; });
  }

  /// Of the segment's chunks each is due the part that he lacks of what all lack, so that all get what they need.
  void add_due() {
    weights_.clear();
    int64_t all = 0;
    for (Getting& one : getting_) {
      weights_.push_back(one.lacks == 0 ? 0 : one.lacks_here * one.needs * kParts / one.lacks);
      all += weights_.back();
      one.lacks -= one.lacks_here;
    }
    if (all == 0) {
      for (size_t i = 0; i < getting_.size(); ++i) all += weights_[i] = getting_[i].needs;
    }
    for (size_t i = 0; i < getting_.size(); ++i) getting_[i].due += left_ * kParts * weights_[i] / all;
  }

  [[nodiscard]] static bool is_due(const Getting& one) { return one.due > 0 && one.needs > 0; }
  /// Whole chunks that are due.
  [[nodiscard]] static int64_t due_of(const Getting& one) {
    return std::clamp<int64_t>(one.due / kParts, 0, one.needs);
  }
  /// How much of so many chunks is handed over at once: all, where too little for another would be left.
  [[nodiscard]] int32_t portion(const Getting& one, int32_t count) const {
    return static_cast<int32_t>(std::min<int64_t>(count < 2 * grain_ ? count : grain_, one.needs));
  }

  void hand_over(ChunkRange chunks, const Gift& gift, Getting& one) {
    moves_.push_back({chunks, gift.from, one.rank});
    one.needs -= chunks.count;
    one.owns += chunks.count;
    one.due -= chunks.count * kParts;
    left_ -= chunks.count;
  }

  /// Who has the last chunk of a gift that `next` lies right behind; nobody has what is not dealt out yet.
  static int32_t heir_of(const Offered& gift, const Offered& next) {
    const bool is_dealt = gift.gift.chunks.count == 0;
    return is_dealt && gift.gift.chunks.first == next.gift.chunks.first ? gift.before : kNobody;
  }

  /// What lies beside somebody's chunks makes no new run at him: its front and its back, as far as they are due there.
  void give_beside(Offered& offered) {
    ChunkRange& chunks = offered.gift.chunks;
    for (const bool is_front : {true, false}) {
      const int32_t rank = is_front ? offered.before : offered.behind;
      const int32_t at = rank == kNobody ? kNobody : place_of_[static_cast<size_t>(rank)];
      if (at == kNobody || chunks.count == 0) continue;
      Getting& one = getting_[static_cast<size_t>(at)];
      if (!is_due(one) || (one.owns * kParts >= even_ && cutting_.grain != kWholeRuns)) continue;
      const int64_t least = chunks.count < 2 * grain_ ? portion(one, chunks.count) : 0;
      const auto count = static_cast<int32_t>(std::min<int64_t>(std::max(due_of(one), least), chunks.count));
      if (count == 0) continue;
      hand_over(is_front ? taken_from_front(chunks, count) : taken_from_back(chunks, count), offered.gift, one);
    }
  }

  /// To each what is due, if it is worth a cut, and to some in turn a chunk of what is over.
  void give_due(std::span<Offered>& gifts) {
    counts_.clear();
    int64_t over = left_;
    for (const Getting& one : getting_) {
      counts_.push_back(due_of(one) < grain_ ? 0 : std::min(due_of(one), over));
      over -= counts_.back();
    }
    const size_t began = turn_;
    for (size_t i = 0; i < getting_.size() && over > 0; ++i) {
      const size_t at = (began + i) % getting_.size();
      const Getting& one = getting_[at];
      if ((counts_[at] == 0 && grain_ > 1) || counts_[at] == one.needs || one.due <= counts_[at] * kParts) continue;
      ++counts_[at];
      --over;
      turn_ = (at + 1) % getting_.size();
    }
    for (size_t at = 0; at < getting_.size(); ++at) {
      while (counts_[at] > 0) counts_[at] -= give_of_first(getting_[at], counts_[at], gifts);
    }
  }

  /// All that is left, portion by portion: who has least of the segment comes first, until nothing is due to him.
  void give_rest(std::span<Offered>& gifts) {
    order_.clear();
    for (size_t i = 0; i < getting_.size(); ++i) order_.push_back((turn_ + i) % getting_.size());
    std::stable_sort(order_.begin(), order_.end(),
                     [this](size_t one, size_t other) { return getting_[one].owns < getting_[other].owns; });
    for (const size_t at : order_) {
      while (left_ > 0 && is_due(getting_[at])) give_portion(at, gifts);
    }
    while (left_ > 0) {  // what was lost in rounding, and what was due to those who need no more
      for (const size_t at : order_) {
        if (left_ > 0 && getting_[at].needs > 0) give_portion(at, gifts);
      }
    }
  }

  void give_portion(size_t at, std::span<Offered>& gifts) {
    while (gifts.front().gift.chunks.count == 0) gifts = gifts.subspan(1);
    give_of_first(getting_[at], portion(getting_[at], gifts.front().gift.chunks.count), gifts);
    turn_ = (at + 1) % getting_.size();
  }

  int64_t give_of_first(Getting& one, int64_t most, std::span<Offered>& gifts) {
    while (gifts.front().gift.chunks.count == 0) gifts = gifts.subspan(1);
    Gift& gift = gifts.front().gift;
    const auto count = static_cast<int32_t>(std::min<int64_t>(gift.chunks.count, most));
    hand_over(taken_from_front(gift.chunks, count), gift, one);
    return count;
  }

  std::vector<Offered> gifts_;
  const Ownership& from_;
  const Cutting& cutting_;
  int32_t grain_;
  int64_t ranks_;  ///< of the new map
  std::vector<Getting> getting_;
  std::vector<int32_t> getting_at_;  ///< place in getting_ of each old rank that needs chunks
  std::vector<int32_t> place_of_;    ///< of each new one
  std::vector<int64_t> weights_;     ///< this and what follows: in the segment, for each of getting_
  std::vector<int64_t> counts_;
  std::vector<size_t> order_;
  int64_t even_ = 0;  ///< a rank's part, in 1/kParts of a chunk
  int64_t left_ = 0;
  size_t turn_ = 0;  ///< who is the next to get what is over
  std::vector<Move> moves_;
};

}  // namespace

std::vector<Move> deal_out(std::vector<Gift>& gifts, const std::vector<int32_t>& needs, const Ownership& from,
                           std::span<const int32_t> new_rank_of, const Cutting& cutting) {
  std::sort(gifts.begin(), gifts.end(),
            [](const Gift& left, const Gift& right) { return left.chunks.first < right.chunks.first; });
  return Dealer(offered(gifts, from, new_rank_of), needs, from, new_rank_of, cutting).deal();
}

}  // namespace pliant::sharded
