// Fills packs up to a token budget in one greedy pass over ordered sequences.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sampler {

/// Why a packing sampler leaves sequences out; indices into its reasons().
enum DropReason : int32_t { kTooLong = 0, kBelowMinBatchSize = 1, kLastSequence = 2, kIncompleteBatch = 3 };

struct PackRule {
  int64_t max_tokens = 0;      ///< of one pack; no sequence is longer
  uint64_t min_sequences = 0;  ///< of one pack
  uint64_t max_sequences = 0;  ///< of one pack; 0 = no limit
  uint64_t packs_at_once = 1;  ///< packs that fill side by side, turn by turn, and get the same number of sequences
  bool strict = false;         ///< mends the reference: see seqlen's option of that name
};

/// One pass over `order`; whole packs go to `rows`, the rest is dropped with a reason.
class Packer {
 public:
  Packer(std::span<const int64_t> order, std::span<const int32_t> lengths, const PackRule& rule, sdk::EpochRows& rows)
      : order_(order), lengths_(lengths), rule_(rule), rows_(rows) {}

  void run() {
    const uint64_t total = order_.size();
    uint64_t begin = 0;
    while (begin < total) {
      // The reference never uses the last sequence: its end is exclusive.
      const uint64_t usable = total - begin - (rule_.strict ? 0 : 1);
      const uint64_t width = rule_.strict ? std::min(rule_.packs_at_once, usable) : rule_.packs_at_once;
      const uint64_t most = usable / width;
      if (most == 0) return drop(begin, total, kLastSequence);
      const uint64_t depth = deepest_fit(begin, width, most);
      if (depth >= rule_.min_sequences) {
        emit(begin, width, depth);
      } else if (rule_.strict) {
        drop(begin, begin + depth * width, kBelowMinBatchSize);
      } else {
        return drop(begin, total, kBelowMinBatchSize);
      }
      begin += depth * width;
    }
  }

 private:
  [[nodiscard]] int64_t length_at(uint64_t position) const { return lengths_[static_cast<size_t>(order_[position])]; }

  /// The largest number of sequences, at most `most`, that each of `width` packs from `begin` on can take; at least 1.
  uint64_t deepest_fit(uint64_t begin, uint64_t width, uint64_t most) {
    const uint64_t cap = rule_.max_sequences == 0 ? most : std::min(most, rule_.max_sequences);
    room_.assign(width, rule_.max_tokens);
    for (uint64_t depth = 0; depth < cap; ++depth) {
      for (uint64_t column = 0; column < width; ++column) {
        const int64_t length = length_at(begin + depth * width + column);
        if (length > room_[column]) return depth;
        room_[column] -= length;
      }
    }
    return cap;
  }
  void emit(uint64_t begin, uint64_t width, uint64_t depth) {
    for (uint64_t column = 0; column < width; ++column) {
      for (uint64_t i = 0; i < depth; ++i) rows_.ids.push_back(order_[begin + i * width + column]);
      rows_.end_row();
    }
  }
  void drop(uint64_t first, uint64_t last, DropReason reason) {
    for (uint64_t i = first; i < last; ++i) rows_.drop(order_[i], reason);
  }

  std::span<const int64_t> order_;
  std::span<const int32_t> lengths_;
  const PackRule& rule_;
  sdk::EpochRows& rows_;
  std::vector<int64_t> room_;
};

}  // namespace pliant::sampler
