// The rows of a best-fit plan: sequences sorted by size, kinds of packs and their order; rows are written when asked
// for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "best_fit.hpp"
#include "fast_shuffle.hpp"
#include "length_sort.hpp"
#include "pack_order.hpp"
#include "pliant/sdk/batch_sampler.hpp"
#include "threads.hpp"

namespace pliant::sampler {

/// How the sequences of one size are shuffled: one by one, or in blocks of neighbours where they are many.
enum class Shuffled { kEach, kBlocks };

namespace detail {

/// Shuffles the sequences of each size. The same for every number of threads.
inline void shuffle_sequences(const OrderKey& key, Shuffled how, size_t threads, ByValue& sorted) {
  constexpr size_t kMany = 256;
  constexpr uint64_t kStretch = uint64_t{1} << 17U;  // sequences that one generator serves
  std::vector<size_t> begins{0};
  for (size_t g = 0; g < sorted.groups(); ++g) {
    if (sorted.begins[g + 1] - sorted.begins[begins.back()] >= kStretch) begins.push_back(g + 1);
  }
  if (begins.back() != sorted.groups()) begins.push_back(sorted.groups());
  // The largest first, so that no thread is left alone with one.
  std::vector<size_t> by_size(begins.size() - 1);
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  const auto size_of = [&](size_t at) { return sorted.begins[begins[at + 1]] - sorted.begins[begins[at]]; };
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) { return size_of(a) > size_of(b); });
  const auto list_of = [&](size_t g) {
    return std::span<uint32_t>(sorted.positions.get() + sorted.begins[g], sorted.count(g));
  };
  share_out(useful_threads(threads, sorted.begins.back()), by_size.size(), [&](size_t turn) {
    const size_t at = by_size[turn];
    KeyedRandom random = key.random(Drawn::kSequences, at);
    for (size_t g = begins[at]; g < begins[at + 1]; ++g) {
      const std::span<uint32_t> group = list_of(g);
      if (how == Shuffled::kBlocks && group.size() >= kMany) {
        fast_shuffle_blocks(group, random, g + 1 < begins[at + 1] ? list_of(g + 1) : std::span<uint32_t>());
      } else {
        fast_shuffle(group, random);
      }
    }
  });
}

/// Sequences in one pack of each group.
inline void count_entries(const PackPlan& plan, std::vector<uint64_t>& entries) {
  entries.clear();
  for (const PackGroup& group : plan.groups) {
    uint64_t held = 0;
    for (uint32_t p = group.begin; p < group.end; ++p) held += plan.parts[p].times;
    entries.push_back(held);
  }
}

/// The rows of one bucket: where each begins, and where those of each of its runs do.
class BucketRows {
 public:
  std::vector<uint32_t> begins;  ///< of each row, and of the one behind the last
  std::vector<uint32_t> packs;   ///< of each pack of the runs, one run after the other: where its row begins

  void forget() { bucket_ = kNoBucket; }
  /// `entries`: sequences in one pack of each group.
  void load(const PackOrder& order, const std::vector<uint64_t>& entries, size_t bucket) {
    if (bucket_ == bucket) return;
    bucket_ = bucket;
    order.find_packs(bucket, order_);
    held_.resize(order_.size());
    uint32_t* next = held_.data();
    for (uint64_t run = order.run_begins[bucket]; run < order.run_begins[bucket + 1]; ++run) {
      next = std::fill_n(next, order.runs[run].count, static_cast<uint32_t>(entries[order.runs[run].group]));
    }
    packs.resize(order_.size());
    begins.resize(order_.size() + 1);
    uint32_t at = 0;
    for (size_t row = 0; row < order_.size(); ++row) {
      const uint32_t pack = order_[row];
      begins[row] = at;
      packs[pack] = at;
      at += held_[pack];
    }
    begins.back() = at;
  }

 private:
  static constexpr size_t kNoBucket = ~size_t{0};
  size_t bucket_ = kNoBucket;
  std::vector<uint32_t> order_;  ///< the pack of each row
  std::vector<uint32_t> held_;   ///< sequences in each pack
};

}  // namespace detail

/// 4 bytes a sequence, and what the kinds of packs and their order take. The packs of a bucket take the next sequences
/// of each of their sizes, one run of like packs after the other, whichever rows they are: which sequences of a size
/// these are is random already. So lists are read in stretches, and only the ids of one bucket, which stay in the
/// cache, are written out of order.
class BestFitRows : public sdk::RowSource {
 public:
  size_t threads = 1;
  ByValue sorted;  ///< of all sequences
  PackPlan plan;   ///< of the sizes in `sorted`

  void order_as_planned() {
    detail::count_entries(plan, entries_);
    sampler::order_as_planned(plan, entries_, order_);
    here_.restart();
  }
  /// Every order of packs is equally likely, and so is every choice among sequences, or blocks of sequences, of one
  /// size. The eight of a block go into one bucket, or into two that follow each other, anywhere in them.
  void order_at_random(const OrderKey& key, Shuffled how) {
    detail::count_entries(plan, entries_);
    detail::shuffle_sequences(key, how, threads, sorted);
    sampler::order_at_random(plan, entries_, entry_count(), key, threads, order_);
    here_.restart();
  }

  [[nodiscard]] uint64_t row_count() const override { return plan.packs; }
  [[nodiscard]] uint64_t entry_count() const override { return sorted.begins.back(); }
  void write(uint64_t first, uint64_t count, uint64_t* offsets, int64_t* ids) override {
    offsets[0] = 0;
    if (count == 0) return;
    const size_t first_bucket = order_.bucket_of(first);
    const size_t buckets = order_.bucket_of(first + count - 1) - first_bucket + 1;
    const size_t parts = ids == nullptr ? 1 : std::min(buckets, useful_threads(threads, buckets * kLeastBucket));
    const uint64_t base = here_.entry(*this, first);
    if (parts == 1) return here_.write(*this, first, count, base, offsets, ids);
    here_.go_to(*this, first_bucket);
    // Every part but the first begins with a bucket.
    in_parallel(parts, [&](size_t part) {
      const auto begin_of = [&](size_t p) {
        if (p == 0) return first;
        return p == parts ? first + count : order_.pack_begins[first_bucket + slice(buckets, p, parts)];
      };
      const uint64_t begin = begin_of(part);
      Cursor own = here_;
      own.write(*this, begin, begin_of(part + 1) - begin, base, offsets + (begin - first), ids);
    });
  }

 private:
  static constexpr size_t kLeastBucket = size_t{1} << 14U;

  /// A bucket's first row: of each size the next sequence.
  class Cursor {
   public:
    /// For another plan; keeps its memory.
    void restart() {
      next_.clear();
      rows_.forget();
      kept_ = kNoBucket;
    }
    /// Where `row` begins.
    uint64_t entry(const BestFitRows& rows, uint64_t row) {
      const size_t bucket = rows.order_.bucket_of(row);
      rows_.load(rows.order_, rows.entries_, bucket);
      return rows.order_.entry_begins[bucket] + rows_.begins[row - rows.order_.pack_begins[bucket]];
    }
    void go_to(const BestFitRows& rows, size_t bucket) {
      if (bucket < bucket_ || next_.empty()) {
        bucket_ = 0;
        next_.assign(rows.sorted.begins.begin(), rows.sorted.begins.end());
      }
      for (; bucket_ < bucket; ++bucket_) pass_over(rows);
    }
    /// `count` rows from `first` on: offsets[1 .. count] less `base`, and their ids where those offsets say.
    void write(const BestFitRows& rows, uint64_t first, uint64_t count, uint64_t base, uint64_t* offsets,
               int64_t* ids) {
      const PackOrder& order = rows.order_;
      for (size_t bucket = order.bucket_of(first); count > 0; ++bucket) {
        rows_.load(order, rows.entries_, bucket);
        const uint64_t row = first - order.pack_begins[bucket];
        const uint64_t some = std::min(count, order.pack_begins[bucket + 1] - first);
        const uint64_t before = order.entry_begins[bucket] - base;
        for (uint64_t i = 1; i <= some; ++i) offsets[i] = before + rows_.begins[row + i];
        if (ids != nullptr) {
          write_ids(rows, bucket, rows_.begins[row], rows_.begins[row + some], ids + (before + rows_.begins[row]));
        }
        first += some;
        count -= some;
        offsets += some;
      }
    }

   private:
    static constexpr uint32_t kMostKept = uint32_t{1} << 20U;
    static constexpr uint64_t kRunsAhead = 4;
    static constexpr size_t kNoBucket = ~size_t{0};

    void pass_over(const BestFitRows& rows) {
      see_runs(rows, bucket_, [&](const PackOrder::Run& run, std::span<const PackPart> parts) {
        for (const PackPart& part : parts) next_[part.group] += part.times * run.count;
      });
    }
    template <class See>
    static void see_runs(const BestFitRows& rows, size_t bucket, See&& see) {
      for (uint64_t at = rows.order_.run_begins[bucket]; at < rows.order_.run_begins[bucket + 1]; ++at) {
        see(rows.order_.runs[at], rows.parts(rows.order_.runs[at].group));
      }
    }
    /// Entries [begin, end) of `bucket`, which are whole rows of it.
    void write_ids(const BestFitRows& rows, size_t bucket, uint32_t begin, uint32_t end, int64_t* ids) {
      if (kept_ != bucket) {
        go_to(rows, bucket);
        if (rows_.begins.back() > kMostKept) return write_each(rows, begin, end, ids);
        fill(rows);
      }
      std::copy(ids_.data() + begin, ids_.data() + end, ids);
    }
    /// ids_ = those of bucket_, then goes on.
    void fill(const BestFitRows& rows) {
      ids_.resize(rows_.begins.back());
      const uint32_t* packs = rows_.packs.data();
      const PackOrder::Run* ahead = rows.order_.runs.data() + rows.order_.run_begins[bucket_] + kRunsAhead;
      const PackOrder::Run* const end = rows.order_.runs.data() + rows.order_.runs.size();
      see_runs(rows, bucket_, [&](const PackOrder::Run& run, std::span<const PackPart> parts) {
        if (ahead < end) ask_for(rows, (ahead++)->group);
        uint32_t* to = ids_.data();
        for (const PackPart& part : parts) {
          const uint32_t* const from = rows.sorted.positions.get() + next_[part.group];
          next_[part.group] += part.times * run.count;
          if (part.times == 1) {
            for (uint32_t i = 0; i < run.count; ++i) to[packs[i]] = from[i];
          } else {
            for (uint32_t i = 0; i < run.count; ++i) {
              for (uint32_t k = 0; k < part.times; ++k) to[packs[i] + k] = from[i * part.times + k];
            }
          }
          to += part.times;
        }
        packs += run.count;
      });
      kept_ = bucket_++;
    }
    /// Brings near what packs of `group` take next.
    void ask_for(const BestFitRows& rows, uint32_t group) const {
      for (const PackPart& part : rows.parts(group)) {
        const uint32_t* const from = rows.sorted.positions.get() + next_[part.group];
        __builtin_prefetch(from);
        __builtin_prefetch(from + ByValue::kLine);
      }
    }
    /// As write_ids, for a bucket of few but large packs: keeps nothing.
    void write_each(const BestFitRows& rows, uint32_t begin, uint32_t end, int64_t* ids) const {
      std::vector<uint32_t> next = next_;
      const uint32_t* pack = rows_.packs.data();
      see_runs(rows, bucket_, [&](const PackOrder::Run& run, std::span<const PackPart> parts) {
        for (uint32_t i = 0; i < run.count; ++i, ++pack) {
          int64_t* to = *pack >= begin && *pack < end ? ids + (*pack - begin) : nullptr;
          for (const PackPart& part : parts) {
            if (to != nullptr) to = std::copy_n(rows.sorted.positions.get() + next[part.group], part.times, to);
            next[part.group] += part.times;
          }
        }
      });
    }

    size_t bucket_ = 0;           ///< the one that next_ is for
    std::vector<uint32_t> next_;  ///< empty = not asked for yet
    detail::BucketRows rows_;
    size_t kept_ = kNoBucket;  ///< the bucket of ids_
    std::vector<uint32_t> ids_;
  };

  [[nodiscard]] std::span<const PackPart> parts(uint32_t group) const {
    const PackGroup& kind = plan.groups[group];
    return {plan.parts.data() + kind.begin, plan.parts.data() + kind.end};
  }

  std::vector<uint64_t> entries_;  ///< in one pack of each group
  PackOrder order_;
  Cursor here_;
};

}  // namespace pliant::sampler
