// In which order the packs of a plan come: as planned, or at random, kept as runs of like packs.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "best_fit.hpp"
#include "fast_shuffle.hpp"
#include "threads.hpp"

namespace pliant::sampler {

/// What a random order is drawn for.
enum class Drawn : uint64_t { kSequences = 1, kBuckets = 2, kPacks = 3 };
struct OrderKey {
  uint64_t seed = 0;
  uint64_t epoch = 0;

  [[nodiscard]] KeyedRandom random(Drawn what, uint64_t part) const {
    return {seed, epoch, static_cast<uint64_t>(what), part};
  }
};

/// Packs in buckets that fit the cache. A bucket holds runs of packs of one group; where the order is random they are
/// shuffled inside the bucket when they are wanted.
struct PackOrder {
  struct Run {
    uint32_t group = 0;
    uint32_t count = 0;
  };
  std::vector<Run> runs;
  std::vector<uint64_t> run_begins;    ///< bucket b has runs[run_begins[b] .. run_begins[b + 1])
  std::vector<uint64_t> pack_begins;   ///< packs in the buckets before
  std::vector<uint64_t> entry_begins;  ///< sequences in the buckets before
  bool is_random = false;
  OrderKey key;

  [[nodiscard]] size_t buckets() const { return run_begins.size() - 1; }
  /// The bucket of `pack`, which there is.
  [[nodiscard]] size_t bucket_of(uint64_t pack) const {
    return static_cast<size_t>(std::upper_bound(pack_begins.begin(), pack_begins.end(), pack) - pack_begins.begin()) -
           1;
  }
  /// Which of the bucket's packs, counted one run after the other, each of its rows is.
  void find_packs(size_t bucket, std::vector<uint32_t>& packs) const {
    packs.resize(pack_begins[bucket + 1] - pack_begins[bucket]);
    std::iota(packs.begin(), packs.end(), 0U);
    if (!is_random) return;
    KeyedRandom random = key.random(Drawn::kPacks, bucket);
    fast_shuffle(packs, random);
  }
};

namespace detail {

inline constexpr uint64_t kBucketEntries = uint64_t{1} << 16U;

struct PlacedRun {
  uint32_t bucket = 0;
  PackOrder::Run run;
};

/// Each of `packs` packs goes to one of 2^bits buckets at random.
class BucketDraws {
 public:
  BucketDraws(unsigned bits, const OrderKey& key, uint64_t part)
      : bits_(bits), random_(key.random(Drawn::kBuckets, part)), counts_(size_t{1} << bits) {}

  void place(uint32_t group, uint64_t packs, std::vector<PlacedRun>& to) {
    if (packs >= counts_.size() * kMany) return split(group, packs, 0, bits_, to);
    if (packs < counts_.size() / kFew) {
      return each(packs, [&](uint32_t bucket) { to.push_back({bucket, {group, 1}}); });
    }
    each(packs, [&](uint32_t bucket) { ++counts_[bucket]; });
    for (uint32_t bucket = 0; bucket < counts_.size(); ++bucket) {
      if (const uint32_t count = std::exchange(counts_[bucket], 0); count != 0) to.push_back({bucket, {group, count}});
    }
  }

 private:
  static constexpr uint64_t kMany = 16;
  static constexpr uint64_t kFew = 2;

  template <class See>
  void each(uint64_t packs, See&& see) {
    while (packs > 0) {
      const auto draws = random_.ready().first(std::min<uint64_t>(packs, random_.ready().size()));
      for (const uint32_t draw : draws) see(bits_ == 0 ? 0U : draw >> (32U - bits_));
      random_.use(draws.size());
      packs -= draws.size();
    }
  }
  /// Among the 2^bits buckets from `bucket` on. Each pack tosses a coin for one of the halves; of packs that are all
  /// alike only the number of heads is asked for.
  void split(uint32_t group, uint64_t packs, uint32_t bucket, unsigned bits, std::vector<PlacedRun>& to) {
    if (bits == 0) {
      if (packs != 0) to.push_back({bucket, {group, static_cast<uint32_t>(packs)}});
      return;
    }
    const uint64_t upper = random_.heads(packs);
    split(group, packs - upper, bucket, bits - 1, to);
    split(group, upper, bucket + (1U << (bits - 1)), bits - 1, to);
  }
  unsigned bits_;
  KeyedRandom random_;
  std::vector<uint32_t> counts_;
};

/// Groups in stretches of about as many packs, whatever the number of threads: where each begins.
inline std::vector<size_t> stretches(const std::vector<PackGroup>& groups) {
  constexpr uint64_t kPacks = uint64_t{1} << 18U;
  std::vector<size_t> begins{0};
  uint64_t packs = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    packs += groups[g].count;
    if (packs < kPacks) continue;
    begins.push_back(g + 1);
    packs = 0;
  }
  if (begins.back() != groups.size()) begins.push_back(groups.size());
  return begins;
}

/// run(0 .. count-1), each once, shared out among threads as they get free.
template <class Run>
void share_out(size_t threads, size_t count, Run&& run) {
  std::atomic<size_t> next{0};
  in_parallel(std::clamp(count, size_t{1}, threads), [&](size_t) {
    for (size_t at = next++; at < count; at = next++) run(at);
  });
}

/// Sums up what the runs of each bucket hold. `entries`: of one pack of each group.
inline void count_buckets(const std::vector<uint64_t>& entries, PackOrder& order) {
  order.pack_begins.assign(1, 0);
  order.entry_begins.assign(1, 0);
  for (size_t bucket = 0; bucket < order.buckets(); ++bucket) {
    uint64_t packs = order.pack_begins.back();
    uint64_t held = order.entry_begins.back();
    for (uint64_t at = order.run_begins[bucket]; at < order.run_begins[bucket + 1]; ++at) {
      packs += order.runs[at].count;
      held += order.runs[at].count * entries[order.runs[at].group];
    }
    order.pack_begins.push_back(packs);
    order.entry_begins.push_back(held);
  }
}

}  // namespace detail

/// As planned. `entries`: sequences in one pack of each group.
inline void order_as_planned(const PackPlan& plan, const std::vector<uint64_t>& entries, PackOrder& order) {
  order.is_random = false;
  order.runs.clear();
  order.run_begins.assign(1, 0);
  uint64_t room = detail::kBucketEntries;
  for (uint32_t group = 0; group < plan.groups.size(); ++group) {
    for (uint64_t left = plan.groups[group].count; left > 0;) {
      const uint64_t fits = std::max<uint64_t>(room / entries[group], 1);
      const auto count = static_cast<uint32_t>(std::min(left, fits));
      order.runs.push_back({group, count});
      left -= count;
      room -= std::min(room, count * entries[group]);
      if (room > 0 && left == 0) continue;
      order.run_begins.push_back(order.runs.size());
      room = detail::kBucketEntries;
    }
  }
  if (order.run_begins.back() != order.runs.size()) order.run_begins.push_back(order.runs.size());
  detail::count_buckets(entries, order);
}

/// Every order of the packs is equally likely: each pack goes to a bucket at random and the packs of a bucket are
/// shuffled. The same for every number of threads.
inline void order_at_random(const PackPlan& plan, const std::vector<uint64_t>& entries, uint64_t sequences,
                            const OrderKey& key, size_t threads, PackOrder& order) {
  constexpr uint64_t kFewestPacks = 64;
  const uint64_t wanted = std::min(sequences / detail::kBucketEntries, plan.packs / kFewestPacks);
  const auto bits = static_cast<unsigned>(std::bit_width(wanted | 1U)) - 1;
  order.is_random = true;
  order.key = key;
  const std::vector<size_t> begins = detail::stretches(plan.groups);
  std::vector<std::vector<detail::PlacedRun>> placed(begins.size() - 1);
  detail::share_out(threads, placed.size(), [&](size_t at) {
    detail::BucketDraws draws(bits, key, at);
    for (size_t g = begins[at]; g < begins[at + 1]; ++g) {
      draws.place(static_cast<uint32_t>(g), plan.groups[g].count, placed[at]);
    }
  });
  order.run_begins.assign((size_t{1} << bits) + 1, 0);
  for (const auto& some : placed) {
    for (const detail::PlacedRun& one : some) ++order.run_begins[size_t{one.bucket} + 1];
  }
  for (size_t bucket = 0; bucket < order.buckets(); ++bucket) {
    order.run_begins[bucket + 1] += order.run_begins[bucket];
  }
  order.runs.resize(order.run_begins.back());
  std::vector<uint64_t> next(order.run_begins.begin(), order.run_begins.end() - 1);
  for (auto& some : placed) {
    for (const detail::PlacedRun& one : some) order.runs[next[one.bucket]++] = one.run;
    std::vector<detail::PlacedRun>().swap(some);
  }
  detail::count_buckets(entries, order);
}

}  // namespace pliant::sampler
