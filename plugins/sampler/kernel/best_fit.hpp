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
  std::vector<PackGroup> groups;  ///< in the order in which their first sequence was packed
  std::vector<PackPart> parts;    ///< of each pack, the largest size first
  uint64_t packs = 0;
};

/// Runs of equal sizes are placed at once: after the fullest pack with room r >= size took one, it is the best fit
/// again until less than `size` is left. O(different sizes x parts of a pack), whatever the number of sequences.
template <class Index>
class BestFitDecreasing {
 public:
  /// `values`: sizes 1 .. budget, ascending, each with its number of sequences. most_in_pack 0 = no limit.
  static PackPlan plan(std::span<const int64_t> values, std::span<const uint64_t> counts, int64_t budget,
                       uint64_t most_in_pack) {
    BestFitDecreasing run(budget, most_in_pack, values.empty() ? 1 : values.front());
    for (size_t i = values.size(); i-- > 0;) run.place(static_cast<uint32_t>(i), values[i], counts[i]);
    return run.flatten();
  }

 private:
  /// Packs that are alike so far, as a chain of parts.
  struct Alike {
    uint64_t count = 0;
    int64_t room = 0;
    uint64_t sequences = 0;
    uint32_t part = kNone;
    uint32_t born = 0;
  };
  struct Link {
    PackPart part;
    uint32_t before = kNone;
  };

  BestFitDecreasing(int64_t budget, uint64_t most_in_pack, int64_t smallest)
      : budget_(budget), most_(most_in_pack == 0 ? ~uint64_t{0} : most_in_pack), smallest_(smallest), open_(budget) {}

  void place(uint32_t group, int64_t size, uint64_t left) {
    while (left > 0) {
      const int64_t room = open_.find(size);
      if (room < 0) {
        left -= grow({left, budget_, 0, kNone, births_++}, group, size, left);
        continue;
      }
      const uint32_t at = open_.first(room);
      open_.erase(room, at);
      const Alike alike = alike_[at];
      free_.push_back(at);
      left -= grow(alike, group, size, left);
    }
  }
  /// Puts up to `left` sequences into packs of `alike`, keeps what becomes of those packs, and says how many went in.
  uint64_t grow(const Alike& alike, uint32_t group, int64_t size, uint64_t left) {
    const uint64_t each = std::min(static_cast<uint64_t>(alike.room / size), most_ - alike.sequences);
    const uint64_t full = std::min(alike.count, left / each);
    const uint64_t rest = full == alike.count ? 0 : left - full * each;
    if (full > 0) keep(with(alike, full, group, size, each));
    if (rest > 0) keep(with(alike, 1, group, size, rest));
    const uint64_t used = full + (rest > 0 ? 1 : 0);
    // New packs, without a part, are no more than were needed.
    if (alike.part != kNone && alike.count > used) {
      Alike same = alike;
      same.count -= used;
      keep(same);
    }
    return full * each + rest;
  }
  Alike with(Alike alike, uint64_t count, uint32_t group, int64_t size, uint64_t times) {
    links_.push_back({{group, static_cast<uint32_t>(times)}, alike.part});
    alike.count = count;
    alike.room -= static_cast<int64_t>(times) * size;
    alike.sequences += times;
    alike.part = static_cast<uint32_t>(links_.size() - 1);
    return alike;
  }
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
  PackPlan flatten() {
    for (int64_t room = open_.find(0); room >= 0; room = open_.find(0)) {
      const uint32_t at = open_.first(room);
      open_.erase(room, at);
      done_.push_back(alike_[at]);
    }
    std::stable_sort(done_.begin(), done_.end(), [](const Alike& a, const Alike& b) { return a.born < b.born; });
    PackPlan plan;
    for (const Alike& alike : done_) {
      const auto begin = static_cast<uint32_t>(plan.parts.size());
      for (uint32_t at = alike.part; at != kNone; at = links_[at].before) plan.parts.push_back(links_[at].part);
      std::reverse(plan.parts.begin() + begin, plan.parts.end());
      plan.groups.push_back({alike.count, begin, static_cast<uint32_t>(plan.parts.size())});
      plan.packs += alike.count;
    }
    return plan;
  }

  int64_t budget_;
  uint64_t most_;
  int64_t smallest_;
  Index open_;
  std::vector<Alike> alike_;
  std::vector<uint32_t> free_;
  std::vector<Alike> done_;
  std::vector<Link> links_;
  uint32_t births_ = 0;
};

inline PackPlan best_fit_decreasing(std::span<const int64_t> values, std::span<const uint64_t> counts, int64_t budget,
                                    uint64_t most_in_pack) {
  if (budget <= BitmapIndex::kMostRoom) {
    return BestFitDecreasing<BitmapIndex>::plan(values, counts, budget, most_in_pack);
  }
  return BestFitDecreasing<MapIndex>::plan(values, counts, budget, most_in_pack);
}

}  // namespace pliant::sampler
