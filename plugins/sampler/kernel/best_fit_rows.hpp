// The rows of a best-fit plan: sequences sorted by size, kinds of packs and their order; rows are written when asked
// for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "best_fit.hpp"
#include "fast_shuffle.hpp"
#include "length_sort.hpp"
#include "pack_order.hpp"
#include "pliant/sdk/batch_sampler.hpp"
#include "threads.hpp"

namespace pliant::sampler {

namespace detail {

/// Shuffles the sequences of each size. The same for every number of threads.
inline void shuffle_sequences(const OrderKey& key, size_t threads, ByValue& sorted) {
  constexpr uint64_t kStretch = uint64_t{1} << 17U;  // sequences that one generator serves
  std::vector<size_t> begins{0};
  for (size_t g = 0; g < sorted.groups(); ++g) {
    if (sorted.begins[g + 1] - sorted.begins[begins.back()] >= kStretch) begins.push_back(g + 1);
  }
  if (begins.back() != sorted.groups()) begins.push_back(sorted.groups());
  share_out(useful_threads(threads, sorted.begins.back()), begins.size() - 1, [&](size_t at) {
    KeyedRandom random = key.random(Drawn::kSequences, at);
    for (size_t g = begins[at]; g < begins[at + 1]; ++g) {
      fast_shuffle(std::span(sorted.positions.get() + sorted.begins[g], sorted.count(g)), random);
    }
  });
}

/// The sizes in one pack of each group, written out where they are few.
class PackKinds {
 public:
  static constexpr size_t kFew = 64;

  void reset(const PackPlan& plan) {
    entries_.clear();
    begins_.clear();
    sizes_.clear();
    for (const PackGroup& group : plan.groups) {
      uint64_t entries = 0;
      for (uint32_t p = group.begin; p < group.end; ++p) entries += plan.parts[p].times;
      entries_.push_back(entries);
      begins_.push_back(sizes_.size());
      if (entries > kFew) continue;
      for (uint32_t p = group.begin; p < group.end; ++p) {
        sizes_.insert(sizes_.end(), plan.parts[p].times, plan.parts[p].group);
      }
      sizes_.resize((sizes_.size() + kChunk - 1) / kChunk * kChunk);
    }
  }
  [[nodiscard]] const std::vector<uint64_t>& entries() const { return entries_; }
  /// Copies the sizes of a pack of `group`, which are few; `to` has room for kFew.
  void copy(uint32_t group, uint32_t* to) const {
    const uint32_t* const from = sizes_.data() + begins_[group];
    for (size_t i = 0; i < entries_[group]; i += kChunk) std::memcpy(to + i, from + i, kChunk * sizeof(uint32_t));
  }

 private:
  static constexpr size_t kChunk = 8;
  std::vector<uint64_t> entries_;
  std::vector<size_t> begins_;
  std::vector<uint32_t> sizes_;
};

}  // namespace detail

/// 4 bytes a sequence, and what the kinds of packs and their order take. Each pack takes the next sequences of each of
/// its sizes.
class BestFitRows : public sdk::RowSource {
 public:
  size_t threads = 1;
  ByValue sorted;  ///< of all sequences
  PackPlan plan;   ///< of the sizes in `sorted`

  void order_as_planned() {
    kinds_.reset(plan);
    sampler::order_as_planned(plan, kinds_.entries(), order_);
    here_ = Cursor(*this);
  }
  /// Every order of packs, and every choice among sequences of one size, is equally likely.
  void order_at_random(const OrderKey& key) {
    kinds_.reset(plan);
    detail::shuffle_sequences(key, threads, sorted);
    sampler::order_at_random(plan, kinds_.entries(), entry_count(), key, threads, order_);
    here_ = Cursor(*this);
  }

  [[nodiscard]] uint64_t row_count() const override { return plan.packs; }
  [[nodiscard]] uint64_t entry_count() const override { return sorted.begins.back(); }
  void write(uint64_t first, uint64_t count, uint64_t* offsets, int64_t* ids) override {
    offsets[0] = 0;
    if (count == 0) return;
    here_.seek(*this, first);
    const size_t first_bucket = order_.bucket_of(first);
    const size_t buckets = order_.bucket_of(first + count - 1) - first_bucket + 1;
    const size_t parts = ids == nullptr ? 1 : std::min(buckets, useful_threads(threads, buckets * kLeastBucket));
    if (parts == 1) return here_.write(*this, count, 0, offsets, ids);
    const uint64_t base = here_.entry();
    // Every part but the first begins with a bucket.
    in_parallel(parts, [&](size_t part) {
      const auto begin_of = [&](size_t p) {
        if (p == 0) return first;
        return p == parts ? first + count : order_.pack_begins[first_bucket + slice(buckets, p, parts)];
      };
      const uint64_t begin = begin_of(part);
      Cursor own = here_;
      own.seek(*this, begin);
      const uint64_t at = own.entry() - base;
      own.write(*this, begin_of(part + 1) - begin, at, offsets + (begin - first), ids + at);
    });
  }

 private:
  static constexpr size_t kLeastBucket = size_t{1} << 14U;

  /// A place between two rows: the groups of its bucket, and of each size the next sequence.
  class Cursor {
   public:
    Cursor() = default;
    explicit Cursor(const BestFitRows& rows) { restart(rows); }

    [[nodiscard]] uint64_t entry() const { return entry_; }
    void seek(const BestFitRows& rows, uint64_t row) {
      if (row < row_) restart(rows);
      const PackOrder& order = rows.order_;
      while (bucket_ < order.buckets() && row >= order.pack_begins[bucket_ + 1]) {
        if (row_ == order.pack_begins[bucket_]) {
          skip_bucket(rows);
        } else {
          skip(rows, order.pack_begins[bucket_ + 1]);
        }
      }
      skip(rows, row);
    }
    /// The next `count` rows; offsets[1 .. count], where offsets[0] is `at`. Without ids it stays where it is.
    void write(const BestFitRows& rows, uint64_t count, uint64_t at, uint64_t* offsets, int64_t* ids) {
      if (ids == nullptr) return write_offsets(rows, count, at, offsets);
      while (count > 0) {
        load(rows);
        if (row_ == rows.order_.pack_begins[bucket_]) ask_ahead(rows);
        const uint64_t some = std::min(count, rows.order_.pack_begins[bucket_ + 1] - row_);
        const int64_t* const begin = ids;
        ids = write_some(rows, some, at, offsets, ids);
        at += static_cast<uint64_t>(ids - begin);
        entry_ += static_cast<uint64_t>(ids - begin);
        offsets += some;
        count -= some;
        pass(rows, some);
      }
    }

   private:
    void restart(const BestFitRows& rows) {
      bucket_ = row_ = entry_ = 0;
      loaded_ = false;
      next_.assign(rows.sorted.begins.begin(), rows.sorted.begins.end());
    }
    void load(const BestFitRows& rows) {
      if (!loaded_) rows.order_.expand(bucket_, groups_);
      loaded_ = true;
    }
    /// Goes on by `count` rows of this bucket.
    void pass(const BestFitRows& rows, uint64_t count) {
      row_ += count;
      if (row_ < rows.order_.pack_begins[bucket_ + 1]) return;
      ++bucket_;
      loaded_ = false;
    }
    [[nodiscard]] const uint32_t* group_at(const BestFitRows& rows, uint64_t row) const {
      return groups_.data() + (row - rows.order_.pack_begins[bucket_]);
    }
    /// To `row` of this bucket.
    void skip(const BestFitRows& rows, uint64_t row) {
      if (row == row_) return;
      load(rows);
      const uint64_t count = row - row_;
      const uint32_t* const groups = group_at(rows, row_);
      for (uint64_t i = 0; i < count; ++i) take(rows, groups[i], 1);
      pass(rows, count);
    }
    void skip_bucket(const BestFitRows& rows) {
      const PackOrder& order = rows.order_;
      for (uint64_t run = order.run_begins[bucket_]; run < order.run_begins[bucket_ + 1]; ++run) {
        take(rows, order.runs[run].group, order.runs[run].count);
      }
      pass(rows, order.pack_begins[bucket_ + 1] - row_);
    }
    void take(const BestFitRows& rows, uint32_t group, uint32_t packs) {
      const PackGroup& kind = rows.plan.groups[group];
      for (uint32_t p = kind.begin; p < kind.end; ++p)
        next_[rows.plan.parts[p].group] += rows.plan.parts[p].times * packs;
      entry_ += rows.kinds_.entries()[group] * packs;
    }
    /// Brings the sequences of this bucket near. They are a stretch of those of each size.
    void ask_ahead(const BestFitRows& rows) {
      constexpr uint32_t kLine = 16;
      const PackOrder& order = rows.order_;
      near_.resize(next_.size());
      for (uint64_t run = order.run_begins[bucket_]; run < order.run_begins[bucket_ + 1]; ++run) {
        const PackGroup& kind = rows.plan.groups[order.runs[run].group];
        for (uint32_t p = kind.begin; p < kind.end; ++p) {
          const PackPart& part = rows.plan.parts[p];
          uint32_t& near = near_[part.group];
          near = std::max(near, next_[part.group]);
          const uint32_t end = near + part.times * order.runs[run].count;
          for (; near < end; near += kLine) __builtin_prefetch(rows.sorted.positions.get() + near);
          near = end;
        }
      }
    }
    void write_offsets(const BestFitRows& rows, uint64_t count, uint64_t at, uint64_t* offsets) {
      load(rows);
      const std::vector<uint64_t>& entries = rows.kinds_.entries();
      std::vector<uint32_t> later;
      uint64_t row = row_;
      for (size_t bucket = bucket_; count > 0; ++bucket) {
        if (bucket != bucket_) rows.order_.expand(bucket, later);
        const uint32_t* groups = (bucket == bucket_ ? groups_ : later).data() + (row - rows.order_.pack_begins[bucket]);
        const uint64_t some = std::min(count, rows.order_.pack_begins[bucket + 1] - row);
        for (uint64_t i = 0; i < some; ++i) *++offsets = at += entries[groups[i]];
        row += some;
        count -= some;
      }
    }
    /// Rows of this bucket: first the sizes of some packs, then a sequence for each.
    int64_t* write_some(const BestFitRows& rows, uint64_t count, uint64_t end, uint64_t* offsets, int64_t* ids) {
      constexpr size_t kSizes = 2048;
      sizes_.resize(kSizes + detail::PackKinds::kFew);
      const std::vector<uint64_t>& entries = rows.kinds_.entries();
      const uint32_t* const groups = group_at(rows, row_);
      size_t filled = 0;
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t held = entries[groups[i]];
        offsets[i + 1] = end += held;
        if (held > detail::PackKinds::kFew) {
          ids = write_large(rows, groups[i], write_sizes(rows, filled, ids));
          filled = 0;
          continue;
        }
        rows.kinds_.copy(groups[i], sizes_.data() + filled);
        filled += held;
        if (filled < kSizes) continue;
        ids = write_sizes(rows, filled, ids);
        filled = 0;
      }
      return write_sizes(rows, filled, ids);
    }
    int64_t* write_sizes(const BestFitRows& rows, size_t count, int64_t* ids) {
      const uint32_t* const positions = rows.sorted.positions.get();
      const uint32_t* const sizes = sizes_.data();
      uint32_t* const next = next_.data();
      for (size_t i = 0; i < count; ++i) ids[i] = positions[next[sizes[i]]++];
      return ids + count;
    }
    int64_t* write_large(const BestFitRows& rows, uint32_t group, int64_t* ids) {
      const PackGroup& kind = rows.plan.groups[group];
      for (uint32_t p = kind.begin; p < kind.end; ++p) {
        uint32_t& next = next_[rows.plan.parts[p].group];
        ids = std::copy_n(rows.sorted.positions.get() + next, rows.plan.parts[p].times, ids);
        next += rows.plan.parts[p].times;
      }
      return ids;
    }

    size_t bucket_ = 0;
    uint64_t row_ = 0;
    uint64_t entry_ = 0;  ///< in the rows before
    bool loaded_ = false;
    std::vector<uint32_t> groups_;  ///< of the bucket, where loaded
    std::vector<uint32_t> next_;
    std::vector<uint32_t> near_;  ///< of each size: up to where ask_ahead came
    std::vector<uint32_t> sizes_;
  };

  detail::PackKinds kinds_;
  PackOrder order_;
  Cursor here_;
};

}  // namespace pliant::sampler
