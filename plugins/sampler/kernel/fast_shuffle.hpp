// A shuffle keyed by (seed, epoch, purpose) that stays in cache: scatter into buckets at random, then shuffle each
// bucket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace pliant::sampler {

/// SplitMix64: a counter run through a mix; the same numbers on every machine.
class KeyedRandom {
 public:
  KeyedRandom(uint64_t seed, uint64_t epoch, uint64_t purpose) : state_(mix(mix(mix(seed) ^ epoch) ^ purpose)) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    return mix(state_);
  }
  /// Uniform in [0, bound), bound >= 1.
  uint32_t below(uint32_t bound) {
    uint64_t product = (next() >> 32U) * bound;
    if (static_cast<uint32_t>(product) < bound) {
      const uint32_t unfair = (0U - bound) % bound;
      while (static_cast<uint32_t>(product) < unfair) product = (next() >> 32U) * bound;
    }
    return static_cast<uint32_t>(product >> 32U);
  }

 private:
  static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }
  uint64_t state_;
};

namespace detail {

inline void shuffle_in_cache(std::span<uint32_t> items, KeyedRandom& random) {
  for (size_t i = items.size(); i-- > 1;) std::swap(items[i], items[random.below(static_cast<uint32_t>(i + 1))]);
}

/// Each item goes to one of 256 buckets at random, in its order.
inline std::array<size_t, 257> scatter(std::span<uint32_t> items, KeyedRandom& random) {
  const std::unique_ptr<uint8_t[]> bucket(new uint8_t[items.size()]);
  const std::unique_ptr<uint32_t[]> copy(new uint32_t[items.size()]);
  std::array<size_t, 257> begins{};
  uint64_t bits = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i % 8 == 0) bits = random.next();
    bucket[i] = static_cast<uint8_t>(bits);
    bits >>= 8U;
    ++begins[size_t{bucket[i]} + 1];
    copy[i] = items[i];
  }
  for (size_t b = 0; b < 256; ++b) begins[b + 1] += begins[b];
  std::array<size_t, 257> next = begins;
  for (size_t i = 0; i < items.size(); ++i) items[next[bucket[i]]++] = copy[i];
  return begins;
}

}  // namespace detail

/// Every order is equally likely. Fewer than 2^32 items.
inline void fast_shuffle(std::span<uint32_t> items, KeyedRandom& random) {
  constexpr size_t kInCache = size_t{1} << 16U;
  if (items.size() <= kInCache) return detail::shuffle_in_cache(items, random);
  const auto begins = detail::scatter(items, random);
  for (size_t b = 0; b < 256; ++b) {
    detail::shuffle_in_cache(items.subspan(begins[b], begins[b + 1] - begins[b]), random);
  }
}

}  // namespace pliant::sampler
