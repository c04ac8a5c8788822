// Best-fit-decreasing on the histogram of sizes: the packs that the textbook's loop over sequences makes, found by
// counting.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "length_sort.hpp"
#include "residual_index.hpp"

namespace pliant::sampler {

/// `count` packs that hold the same sizes: parts [begin, end) of the plan.
struct PackGroup {
  uint64_t count = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
};
/// `times` sequences of value group `group`.
struct PackPart {
  uint32_t group = 0;
  uint32_t times = 0;
};
struct PackPlan {
  std::vector<PackGroup> groups;
  std::vector<PackPart> parts;  ///< of each pack, in the order in which they were placed
  uint64_t packs = 0;
};

/// Packs that are alike so far.
struct Alike {
  uint64_t count = 0;
  int64_t room = 0;
  uint64_t sequences = 0;  ///< in each
  uint32_t part = kNone;   ///< the last of their parts; kNone = they have none
  uint32_t born = 0;
};

/// Packs by kind. Runs of equal sizes are placed at once: after the fullest pack with room r >= size took one, it is
/// the best fit again until less than `size` is left. O(different sizes x parts of a pack), whatever the number of
/// sequences.
template <class Index>
class KindsOfPacks {
 public:
  /// most_in_pack 0 = no limit.
  KindsOfPacks(int64_t budget, uint64_t most_in_pack)
      : budget_(budget), most_(most_in_pack == 0 ? ~uint64_t{0} : most_in_pack), open_(budget) {}

  /// No packs. Those with less room than `smallest` are done.
  void restart(int64_t smallest) {
    smallest_ = smallest;
    alike_.clear();
    free_.clear();
    done_.clear();
    links_.clear();
    births_ = 0;
  }
  /// A pack that has sequences already, as the next that is born.
  void open(int64_t room, uint64_t sequences) { keep({1, room, sequences, kNone, births_++}); }
  /// A new pack, for a caller that fills it itself: with() what it got, then keep().
  Alike empty_pack() { return {1, budget_, 0, kNone, births_++}; }
  /// Best fit for `left` sequences of `size` 1 .. budget, which are value group `group`.
  void place(uint32_t group, int64_t size, uint64_t left) {
    while (left > 0) {
      const int64_t room = open_.find(size);
      if (room < 0) {
        left -= grow({left, budget_, 0, kNone, births_++}, true, group, size, left);
        continue;
      }
      const uint32_t at = open_.take(room);
      const Alike alike = alike_[at];
      free_.push_back(at);
      left -= grow(alike, false, group, size, left);
    }
  }
  /// Takes out those that are open, the fullest first.
  void take_open(std::vector<Alike>& taken) {
    for (int64_t room = open_.find(0); room >= 0; room = open_.find(0)) {
      const uint32_t at = open_.take(room);
      taken.push_back(alike_[at]);
      free_.push_back(at);
    }
  }
  /// Open again, or done.
  void keep(const Alike& alike) {
    if (alike.room < smallest_ || alike.sequences >= most_) {
      done_.push_back(alike);
      return;
    }
    uint32_t at = static_cast<uint32_t>(alike_.size());
    if (free_.empty()) {
      alike_.push_back(alike);
    } else {
      at = free_.back();
      free_.pop_back();
      alike_[at] = alike;
    }
    open_.insert(alike.room, at);
  }
  /// Up to how many sequences a pack of `alike` takes in number.
  [[nodiscard]] uint64_t places(const Alike& alike) const { return most_ - alike.sequences; }
  /// `alike` with one more part, for `count` of its packs.
  Alike with(Alike alike, uint64_t count, const PackPart& part, int64_t room) {
    links_.push_back({part, alike.part});
    alike.count = count;
    alike.room = room;
    alike.sequences += part.times;
    alike.part = static_cast<uint32_t>(links_.size() - 1);
    return alike;
  }
  /// All kinds: those that are done, and from the number that it says on those that were open, the fullest first.
  size_t finish() {
    const size_t done = done_.size();
    take_open(done_);
    return done;
  }
  [[nodiscard]] std::vector<Alike>& kinds() { return done_; }
  /// see(part) for each part of a pack, the one that was placed last first.
  template <class See>
  void see_parts(const Alike& alike, See&& see) const {
    for (uint32_t at = alike.part; at != kNone; at = links_[at].before) see(links_[at].part);
  }
  /// A group for each of kinds().
  void write(PackPlan& plan) const {
    plan.groups.clear();
    plan.parts.clear();
    plan.packs = 0;
    for (const Alike& alike : done_) {
      const auto begin = static_cast<uint32_t>(plan.parts.size());
      see_parts(alike, [&](const PackPart& part) { plan.parts.push_back(part); });
      std::reverse(plan.parts.begin() + begin, plan.parts.end());
      plan.groups.push_back({alike.count, begin, static_cast<uint32_t>(plan.parts.size())});
      plan.packs += alike.count;
    }
  }

 private:
  struct Link {
    PackPart part;
    uint32_t before = kNone;
  };

  /// Puts up to `left` sequences into packs of `alike`, keeps what becomes of those packs, and says how many went in.
  /// New packs are no more than are needed.
  uint64_t grow(const Alike& alike, bool are_new, uint32_t group, int64_t size, uint64_t left) {
    const uint64_t fit = alike.room - size < size ? 1 : static_cast<uint64_t>(alike.room / size);
    const uint64_t each = std::min(fit, most_ - alike.sequences);
    const uint64_t full = std::min(alike.count, each == 1 ? left : left / each);
    const uint64_t rest = full == alike.count ? 0 : left - full * each;
    const auto put = [&](uint64_t count, uint64_t times) {
      keep(with(alike, count, {group, static_cast<uint32_t>(times)}, alike.room - static_cast<int64_t>(times) * size));
    };
    if (full > 0) put(full, each);
    if (rest > 0) put(1, rest);
    const uint64_t used = full + (rest > 0 ? 1 : 0);
    if (!are_new && alike.count > used) {
      Alike same = alike;
      same.count -= used;
      keep(same);
    }
    return full * each + rest;
  }

  int64_t budget_;
  uint64_t most_;
  int64_t smallest_ = 1;
  Index open_;
  std::vector<Alike> alike_;
  std::vector<uint32_t> free_;
  std::vector<Alike> done_;
  std::vector<Link> links_;
  uint32_t births_ = 0;
};

namespace detail {

template <class Index>
PackPlan best_fit_decreasing(std::span<const int64_t> values, std::span<const uint64_t> counts, int64_t budget,
                             uint64_t most_in_pack) {
  KindsOfPacks<Index> kinds(budget, most_in_pack);
  kinds.restart(values.empty() ? 1 : values.front());
  for (size_t i = values.size(); i-- > 0;) kinds.place(static_cast<uint32_t>(i), values[i], counts[i]);
  kinds.finish();
  std::stable_sort(kinds.kinds().begin(), kinds.kinds().end(),
                   [](const Alike& a, const Alike& b) { return a.born < b.born; });
  PackPlan plan;
  kinds.write(plan);
  return plan;
}

}  // namespace detail

/// `values`: sizes 1 .. budget, ascending, each with its number of sequences. most_in_pack 0 = no limit. Groups in the
/// order in which their first sequence was packed, parts the largest size first.
inline PackPlan best_fit_decreasing(std::span<const int64_t> values, std::span<const uint64_t> counts, int64_t budget,
                                    uint64_t most_in_pack) {
  if (budget <= BitmapIndex::kMostRoom) {
    return detail::best_fit_decreasing<BitmapIndex>(values, counts, budget, most_in_pack);
  }
  return detail::best_fit_decreasing<MapIndex>(values, counts, budget, most_in_pack);
}

}  // namespace pliant::sampler
