// Packs whose sequences are padded to the longest of them: how many fit, and filling such packs in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "pack_options.hpp"

namespace pliant::sampler {

/// A pack of up to `sequences` sequences, each padded to `length` tokens.
struct PackShape {
  int64_t length = 0;
  uint64_t sequences = 0;
};

struct PaddedRule {
  int64_t budget = 0;
  Cost cost;
  int64_t length_multiple = 1;      ///< padded lengths are multiples of this
  uint64_t sequences_multiple = 1;  ///< sequences of a pack, where it has at least as many
  uint64_t most_in_pack = 0;        ///< 0 = no limit
  std::vector<PackShape> shapes;    ///< the only ones allowed, ascending by length; empty = any

  /// How many sequences a pack may have whose longest is `longest`, which fits; at least 1.
  [[nodiscard]] uint64_t capacity(int64_t longest) const {
    const uint64_t most = most_in_pack == 0 ? std::numeric_limits<uint64_t>::max() : most_in_pack;
    if (!shapes.empty()) {
      uint64_t best = 0;
      for (const PackShape& shape : shapes) best = shape.length >= longest ? std::max(best, shape.sequences) : best;
      return std::min(best, most);
    }
    const int64_t each = std::max(cost(padded(longest)), int64_t{1});
    return std::min(static_cast<uint64_t>(budget / each), most);
  }
  [[nodiscard]] int64_t padded(int64_t length) const {
    const int64_t over = length % length_multiple;
    return over == 0 ? length : length + (length_multiple - over);
  }
  /// What a pack of `sequences`, at most capacity(longest), uses of the budget: those of its smallest shape, or of
  /// sequences padded to the longest.
  [[nodiscard]] uint64_t used(int64_t longest, uint64_t sequences) const {
    if (shapes.empty()) return static_cast<uint64_t>(cost(padded(longest))) * sequences;
    uint64_t least = std::numeric_limits<uint64_t>::max();
    for (const PackShape& shape : shapes) {
      if (shape.length < longest || shape.sequences < sequences) continue;
      least = std::min(least, static_cast<uint64_t>(cost(shape.length)) * shape.sequences);
    }
    return least;
  }
  /// The longest sequence that fits a pack alone; below 1 when none does.
  [[nodiscard]] int64_t longest() const {
    if (!shapes.empty()) return shapes.back().length;
    const int64_t most = cost.longest_within(budget);
    return most - most % length_multiple;
  }
};

/// One pack being filled.
class PaddedPack {
 public:
  explicit PaddedPack(const PaddedRule& rule) : rule_(&rule) {}
  /// Adds a sequence, or says false when the pack must be closed first.
  bool add(int64_t length) {
    if (length > longest_) {
      const uint64_t capacity = rule_->capacity(length);
      if (count_ + 1 > capacity) return false;
      longest_ = length;
      capacity_ = capacity;
    } else if (count_ + 1 > capacity_) {
      return false;
    }
    ++count_;
    return true;
  }
  /// How many of its sequences a pack keeps when it is closed: whole multiples, or all where there are fewer.
  [[nodiscard]] uint64_t kept() const {
    const uint64_t multiple = std::max(rule_->sequences_multiple, uint64_t{1});
    return count_ < multiple ? count_ : count_ - count_ % multiple;
  }
  [[nodiscard]] uint64_t count() const { return count_; }

 private:
  const PaddedRule* rule_;
  int64_t longest_ = 0;
  uint64_t capacity_ = 0;
  uint64_t count_ = 0;
};

/// Fills packs in order; appends to `offsets`, which begins with 0, where each ends. Lengths fit. O(n): sequences that
/// a multiple leaves over begin the next pack, fewer than the pack before has.
void fill_padded(std::span<const int32_t> lengths, const PaddedRule& rule, std::vector<uint64_t>& offsets);

}  // namespace pliant::sampler
