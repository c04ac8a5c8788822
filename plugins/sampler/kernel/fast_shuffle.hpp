// Random numbers and a shuffle keyed by (seed, epoch, purpose, part): the same on every machine, whichever thread asks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace pliant::sampler {

/// Eight generators xoshiro128++ (Blackman and Vigna, ACM Transactions on Mathematical Software 47, 2021) side by side,
/// so that a compiler makes vectors of them; seeded by SplitMix64.
class KeyedRandom {
 public:
  KeyedRandom(uint64_t seed, uint64_t epoch, uint64_t purpose, uint64_t part = 0) {
    uint64_t counter = mix(mix(mix(mix(seed) ^ epoch) ^ purpose) ^ part);
    for (auto& word : state_) {
      for (size_t lane = 0; lane < kLanes; lane += 2) {
        counter += 0x9e3779b97f4a7c15U;
        const uint64_t drawn = mix(counter);
        word[lane] = static_cast<uint32_t>(drawn);
        word[lane + 1] = static_cast<uint32_t>(drawn >> 32U);
      }
    }
  }
  /// Numbers that were not used yet, at least one; 32 random bits each.
  std::span<const uint32_t> ready() {
    if (used_ == kDrawn) draw();
    return {drawn_.data() + used_, kDrawn - used_};
  }
  /// The first `count` of ready() are used.
  void use(size_t count) { used_ += count; }

 private:
  static constexpr size_t kLanes = 8;
  static constexpr size_t kDrawn = 256;
  using Word = std::array<uint32_t, kLanes>;

  static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }
  static uint32_t turned(uint32_t x, unsigned by) { return (x << by) | (x >> (32U - by)); }
  void draw() {
    std::array<Word, 4> s = state_;
    for (size_t at = 0; at < kDrawn; at += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        drawn_[at + lane] = turned(s[0][lane] + s[3][lane], 7) + s[0][lane];
        const uint32_t shifted = s[1][lane] << 9U;
        s[2][lane] ^= s[0][lane];
        s[3][lane] ^= s[1][lane];
        s[1][lane] ^= s[2][lane];
        s[0][lane] ^= s[3][lane];
        s[2][lane] ^= shifted;
        s[3][lane] = turned(s[3][lane], 11);
      }
    }
    state_ = s;
    used_ = 0;
  }

  std::array<Word, 4> state_{};
  std::array<uint32_t, kDrawn> drawn_{};
  size_t used_ = kDrawn;
};

namespace detail {

/// kFar: the items are too many for the cache, so what the next swaps need is asked for early.
template <bool kFar>
void shuffle(std::span<uint32_t> items, KeyedRandom& random) {
  constexpr size_t kAhead = 24;
  auto left = static_cast<uint32_t>(items.size());
  while (left > 1) {
    const std::span<const uint32_t> draws = random.ready();
    size_t used = 0;
    for (; used < draws.size() && left > 1; ++used) {
      if constexpr (kFar) {
        if (used + kAhead < draws.size() && left > kAhead) {
          __builtin_prefetch(&items[(uint64_t{draws[used + kAhead]} * (left - kAhead)) >> 32U], 1);
        }
      }
      const uint64_t product = uint64_t{draws[used]} * left;
      // Uniform below `left`: products whose low half is below 2^32 mod left are drawn again.
      if (static_cast<uint32_t>(product) < left && static_cast<uint32_t>(product) < (0U - left) % left) continue;
      --left;
      std::swap(items[left], items[product >> 32U]);
    }
    random.use(used);
  }
}

}  // namespace detail

/// Every order is equally likely. In place; fewer than 2^32 items.
inline void fast_shuffle(std::span<uint32_t> items, KeyedRandom& random) {
  constexpr size_t kInCache = size_t{1} << 17U;
  constexpr size_t kLine = 16;
  if (items.size() > kInCache) return detail::shuffle<true>(items, random);
  for (size_t i = 0; i < items.size(); i += kLine) __builtin_prefetch(&items[i], 1);
  detail::shuffle<false>(items, random);
}

}  // namespace pliant::sampler
