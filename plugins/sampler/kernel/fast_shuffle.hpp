// Random numbers and a shuffle keyed by (seed, epoch, purpose, part): the same on every machine, whichever thread asks.
#pragma once

#include <algorithm>
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
  static constexpr size_t kMostReady = 256;

  KeyedRandom(uint64_t seed, uint64_t epoch, uint64_t purpose, uint64_t part = 0) {
    uint64_t counter = mix(mix(mix(mix(seed) ^ epoch) ^ purpose) ^ part);
    for (State& state : states_) {
      for (Words& word : state) {
        for (int lane = 0; lane < 4; lane += 2) {
          counter += 0x9e3779b97f4a7c15U;
          const uint64_t drawn = mix(counter);
          word[lane] = static_cast<uint32_t>(drawn);
          word[lane + 1] = static_cast<uint32_t>(drawn >> 32U);
        }
      }
    }
  }
  /// Numbers that were not used yet, at least one; 32 random bits each.
  std::span<const uint32_t> ready() {
    if (used_ == kMostReady) draw();
    return {drawn_.data() + used_, kMostReady - used_};
  }
  /// The first `count` of ready() are used.
  void use(size_t count) { used_ += count; }

 private:
  using Words = uint32_t __attribute__((vector_size(16)));  // of four generators
  using State = std::array<Words, 4>;

  static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }
  static Words step(State& s) {
    const Words sum = s[0] + s[3];
    const Words drawn = ((sum << 7U) | (sum >> 25U)) + s[0];
    const Words shifted = s[1] << 9U;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = (s[3] << 11U) | (s[3] >> 21U);
    return drawn;
  }
  void draw() {
    State low = states_[0];
    State high = states_[1];
    for (size_t at = 0; at < kMostReady; at += 8) {
      const Words first = step(low);
      const Words second = step(high);
      std::memcpy(&drawn_[at], &first, sizeof(first));
      std::memcpy(&drawn_[at + 4], &second, sizeof(second));
    }
    states_ = {low, high};
    used_ = 0;
  }

  std::array<State, 2> states_{};
  std::array<uint32_t, kMostReady> drawn_;
  size_t used_ = kMostReady;
};

namespace detail {

/// Swaps the last of `left` items with one of them, then the last but one, and so on, as long as there are draws.
/// Uniform: products whose low half is below 2^32 mod left are drawn again. Says how many draws it used.
inline size_t shuffle_exactly(std::span<uint32_t> items, uint32_t& left, std::span<const uint32_t> draws) {
  size_t used = 0;
  for (; used < draws.size() && left > 1; ++used) {
    const uint64_t product = uint64_t{draws[used]} * left;
    if (static_cast<uint32_t>(product) < left && static_cast<uint32_t>(product) < (0U - left) % left) continue;
    --left;
    std::swap(items[left], items[product >> 32U]);
  }
  return used;
}

}  // namespace detail

/// Every order is equally likely. In place; fewer than 2^32 items.
inline void fast_shuffle(std::span<uint32_t> items, KeyedRandom& random) {
  constexpr size_t kInCache = size_t{1} << 17U;
  constexpr size_t kLine = 16;
  const bool is_far = items.size() > kInCache;
  for (size_t i = 0; !is_far && i < items.size(); i += kLine) __builtin_prefetch(&items[i], 1);
  auto left = static_cast<uint32_t>(items.size());
  std::array<uint32_t, KeyedRandom::kMostReady> places;
  while (left > 1) {
    const std::span<const uint32_t> draws = random.ready();
    const size_t swaps = std::min<size_t>(draws.size(), left - 1);
    bool is_sure = true;  // that no draw has to be drawn again
    for (uint32_t i = 0; i < swaps; ++i) {
      const uint64_t product = uint64_t{draws[i]} * (left - i);
      places[i] = static_cast<uint32_t>(product >> 32U);
      is_sure &= static_cast<uint32_t>(product) >= left - i;
    }
    if (!is_sure) {
      random.use(detail::shuffle_exactly(items, left, draws));
      continue;
    }
    for (size_t i = 0; is_far && i < swaps; ++i) __builtin_prefetch(&items[places[i]], 1);
    for (size_t i = 0; i < swaps; ++i) std::swap(items[--left], items[places[i]]);
    random.use(swaps);
  }
}

}  // namespace pliant::sampler
