// Random numbers and a shuffle keyed by (seed, epoch, purpose, part): the same on every machine, whichever thread asks.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace pliant::sampler {

namespace detail {

/// Words of eight generators xoshiro128++ (Blackman and Vigna, ACM Transactions on Mathematical Software 47, 2021).
using GeneratorWords = std::array<std::array<uint32_t, 8>, 4>;
inline constexpr size_t kDraws = 256;

inline void draw_words(GeneratorWords& words, uint32_t* drawn) {
  using Lanes = uint32_t __attribute__((vector_size(16)));
  for (size_t half = 0; half < 8; half += 4) {
    std::array<Lanes, 4> s;
    for (size_t i = 0; i < 4; ++i) std::memcpy(&s[i], &words[i][half], sizeof(Lanes));
    for (size_t at = half; at < kDraws; at += 8) {
      const Lanes sum = s[0] + s[3];
      const Lanes one = ((sum << 7U) | (sum >> 25U)) + s[0];
      const Lanes shifted = s[1] << 9U;
      s[2] ^= s[0];
      s[3] ^= s[1];
      s[1] ^= s[2];
      s[0] ^= s[3];
      s[2] ^= shifted;
      s[3] = (s[3] << 11U) | (s[3] >> 21U);
      std::memcpy(drawn + at, &one, sizeof(one));
    }
    for (size_t i = 0; i < 4; ++i) std::memcpy(&words[i][half], &s[i], sizeof(Lanes));
  }
}
/// places[i] is below left - i, uniformly unless the answer is false: then a draw may have to be drawn again.
inline bool find_places(std::span<const uint32_t> draws, uint32_t left, uint32_t* places) {
  // The low half of a product must not be below 2^32 mod (left - i). Looked at are the bits above those of `left`,
  // since SSE2 has shifts but no comparison of unsigned numbers.
  const auto bits = static_cast<unsigned>(std::bit_width(left));
  if (bits > 31) return false;
  uint32_t unsure = 0;
  for (uint32_t i = 0; i < draws.size(); ++i) {
    const uint64_t product = uint64_t{draws[i]} * (left - i);
    places[i] = static_cast<uint32_t>(product >> 32U);
    unsure |= (static_cast<uint32_t>(product) >> bits) - 1;
  }
  return unsure >> 31U == 0;
}

inline uint64_t count_ones(std::span<const uint32_t> words) {
  uint64_t ones = 0;
  for (const uint32_t word : words) ones += static_cast<uint64_t>(std::popcount(word));
  return ones;
}

#ifdef __x86_64__

/// The same with AVX2, in less than half the time; compilers make no good code of the loops above.
[[gnu::target("avx2")]] inline void draw_words_avx2(GeneratorWords& words, uint32_t* drawn) {
  const auto at = [](auto* word) { return reinterpret_cast<__m256i*>(word); };
  __m256i s0 = _mm256_loadu_si256(at(&words[0]));
  __m256i s1 = _mm256_loadu_si256(at(&words[1]));
  __m256i s2 = _mm256_loadu_si256(at(&words[2]));
  __m256i s3 = _mm256_loadu_si256(at(&words[3]));
  for (size_t i = 0; i < kDraws; i += 8) {
    const __m256i sum = _mm256_add_epi32(s0, s3);
    const __m256i turned = _mm256_or_si256(_mm256_slli_epi32(sum, 7), _mm256_srli_epi32(sum, 25));
    _mm256_storeu_si256(at(drawn + i), _mm256_add_epi32(turned, s0));
    const __m256i shifted = _mm256_slli_epi32(s1, 9);
    s2 = _mm256_xor_si256(s2, s0);
    s3 = _mm256_xor_si256(s3, s1);
    s1 = _mm256_xor_si256(s1, s2);
    s0 = _mm256_xor_si256(s0, s3);
    s2 = _mm256_xor_si256(s2, shifted);
    s3 = _mm256_or_si256(_mm256_slli_epi32(s3, 11), _mm256_srli_epi32(s3, 21));
  }
  _mm256_storeu_si256(at(&words[0]), s0);
  _mm256_storeu_si256(at(&words[1]), s1);
  _mm256_storeu_si256(at(&words[2]), s2);
  _mm256_storeu_si256(at(&words[3]), s3);
}
[[gnu::target("avx2")]] inline bool find_places_avx2(std::span<const uint32_t> draws, uint32_t left, uint32_t* places) {
  const auto bits = static_cast<unsigned>(std::bit_width(left));
  if (bits > 31) return false;
  const __m128i above = _mm_cvtsi32_si128(static_cast<int>(bits));
  __m256i most = _mm256_sub_epi32(_mm256_set1_epi32(static_cast<int>(left)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  __m256i unsure = _mm256_setzero_si256();
  const size_t whole = draws.size() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) {
    const __m256i draw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(draws.data() + i));
    const __m256i even = _mm256_mul_epu32(draw, most);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(draw, 32), _mm256_srli_epi64(most, 32));
    const __m256i high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    const __m256i low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(places + i), high);
    unsure = _mm256_or_si256(unsure, _mm256_sub_epi32(_mm256_srl_epi32(low, above), _mm256_set1_epi32(1)));
    most = _mm256_sub_epi32(most, _mm256_set1_epi32(8));
  }
  uint32_t rest = 0;
  for (size_t i = whole; i < draws.size(); ++i) {
    const uint64_t product = uint64_t{draws[i]} * (left - static_cast<uint32_t>(i));
    places[i] = static_cast<uint32_t>(product >> 32U);
    rest |= (static_cast<uint32_t>(product) >> bits) - 1;
  }
  return _mm256_movemask_ps(_mm256_castsi256_ps(unsure)) == 0 && rest >> 31U == 0;
}
/// What has AVX2 has POPCNT.
[[gnu::target("popcnt")]] inline uint64_t count_ones_popcnt(std::span<const uint32_t> words) {
  uint64_t ones = 0;
  for (const uint32_t word : words) ones += static_cast<uint64_t>(__builtin_popcount(word));
  return ones;
}
inline bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0;
}

#else

inline void draw_words_avx2(GeneratorWords&, uint32_t*) {}
inline bool find_places_avx2(std::span<const uint32_t>, uint32_t, uint32_t*) {
  return false;
}
inline uint64_t count_ones_popcnt(std::span<const uint32_t> words) {
  return count_ones(words);
}
inline bool has_avx2() {
  return false;
}

#endif

}  // namespace detail

/// Eight generators side by side, so that a compiler makes vectors of them; seeded by SplitMix64.
class KeyedRandom {
 public:
  static constexpr size_t kMostReady = detail::kDraws;

  KeyedRandom(uint64_t seed, uint64_t epoch, uint64_t purpose, uint64_t part = 0) {
    uint64_t counter = mix(mix(mix(mix(seed) ^ epoch) ^ purpose) ^ part);
    for (auto& word : words_) {
      for (size_t lane = 0; lane < word.size(); lane += 2) {
        counter += 0x9e3779b97f4a7c15U;
        const uint64_t drawn = mix(counter);
        word[lane] = static_cast<uint32_t>(drawn);
        word[lane + 1] = static_cast<uint32_t>(drawn >> 32U);
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
  /// How many of so many coins show heads: binomial, exactly, and one number serves 32 coins.
  uint64_t heads(uint64_t coins) {
    constexpr uint64_t kBits = 32;
    uint64_t ones = 0;
    while (coins >= kBits) {
      const std::span<const uint32_t> words = ready().first(std::min<uint64_t>(ready().size(), coins / kBits));
      ones += detail::has_avx2() ? detail::count_ones_popcnt(words) : detail::count_ones(words);
      use(words.size());
      coins -= words.size() * kBits;
    }
    if (coins > 0) {
      ones += static_cast<uint64_t>(std::popcount(ready().front() >> (kBits - coins)));
      use(1);
    }
    return ones;
  }

 private:
  static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }
  void draw() {
    if (detail::has_avx2()) {
      detail::draw_words_avx2(words_, drawn_.data());
    } else {
      detail::draw_words(words_, drawn_.data());
    }
    used_ = 0;
  }

  detail::GeneratorWords words_{};
  std::array<uint32_t, kMostReady> drawn_;
  size_t used_ = kMostReady;
};

namespace detail {

/// Items that are near at once.
inline constexpr size_t kInCache = size_t{1} << 17U;

/// False when they are too many to be near at once.
inline bool bring_near(std::span<uint32_t> items) {
  constexpr size_t kLine = 16;
  if (items.size() > kInCache) return false;
  for (size_t i = 0; i < items.size(); i += kLine) __builtin_prefetch(&items[i], 1);
  return true;
}

/// `count` things, the last of those left swapped with one of them, uniformly drawn, until none is left: the order in
/// which they are then is one of all, each as likely. swap(a, b); is_far: reach(a) brings thing a near before;
/// meanwhile `next` is brought near for whoever comes next.
template <class Swap, class Reach>
void shuffle_things(uint32_t count, KeyedRandom& random, bool is_far, Swap&& swap, Reach&& reach,
                    std::span<uint32_t> next = {}) {
  // With each swap, half a line of what comes next: more at once would wait for each other.
  constexpr size_t kAtOnce = 8;
  size_t near = 0;
  std::array<uint32_t, KeyedRandom::kMostReady> places;
  uint32_t left = count;
  while (left > 1) {
    const std::span<const uint32_t> draws = random.ready();
    const size_t swaps = std::min<size_t>(draws.size(), left - 1);
    const bool is_sure = has_avx2() ? find_places_avx2(draws.first(swaps), left, places.data())
                                    : find_places(draws.first(swaps), left, places.data());
    if (is_sure) {
      for (size_t i = 0; is_far && i < swaps; ++i) reach(places[i]);
      for (size_t i = 0; i < swaps; ++i) {
        swap(--left, places[i]);
        if (near < next.size()) __builtin_prefetch(&next[near], 1);
        near += kAtOnce;
      }
      random.use(swaps);
      continue;
    }
    // One by one: products whose low half is below 2^32 mod left are drawn again.
    size_t used = 0;
    for (; used < draws.size() && left > 1; ++used) {
      const uint64_t product = uint64_t{draws[used]} * left;
      if (static_cast<uint32_t>(product) < left && static_cast<uint32_t>(product) < (0U - left) % left) continue;
      swap(--left, static_cast<uint32_t>(product >> 32U));
    }
    random.use(used);
  }
}

}  // namespace detail

/// Every order is equally likely. In place; fewer than 2^32 items.
inline void fast_shuffle(std::span<uint32_t> items, KeyedRandom& random) {
  const bool is_far = !detail::bring_near(items);
  uint32_t* const at = items.data();
  detail::shuffle_things(
      static_cast<uint32_t>(items.size()), random, is_far, [at](uint32_t a, uint32_t b) { std::swap(at[a], at[b]); },
      [at](uint32_t a) { __builtin_prefetch(at + a, 1); });
}

/// Neighbours that fast_shuffle_blocks keeps together.
inline constexpr size_t kShuffledBlock = 8;

/// In a third of the time: every order of the blocks of neighbours is equally likely, and those of a block keep theirs.
/// First the items behind the last whole block change places with any others. `next`: what is shuffled next.
inline void fast_shuffle_blocks(std::span<uint32_t> items, KeyedRandom& random, std::span<uint32_t> next = {}) {
  const bool is_far = items.size() > detail::kInCache;
  using Block = std::array<uint32_t, kShuffledBlock>;
  const auto blocks = static_cast<uint32_t>(items.size() / kShuffledBlock);
  uint32_t* const at = items.data();
  for (size_t i = size_t{blocks} * kShuffledBlock; i < items.size(); ++i) {
    std::swap(at[i], at[uint64_t{random.ready().front()} * (i + 1) >> 32U]);
    random.use(1);
  }
  const auto swap = [at](uint32_t a, uint32_t b) {
    Block one;
    Block other;
    std::memcpy(&one, at + size_t{a} * kShuffledBlock, sizeof(Block));
    std::memcpy(&other, at + size_t{b} * kShuffledBlock, sizeof(Block));
    std::memcpy(at + size_t{b} * kShuffledBlock, &one, sizeof(Block));
    std::memcpy(at + size_t{a} * kShuffledBlock, &other, sizeof(Block));
  };
  const auto reach = [at](uint32_t a) { __builtin_prefetch(at + size_t{a} * kShuffledBlock, 1); };
  detail::shuffle_things(blocks, random, is_far, swap, reach, next);
}

}  // namespace pliant::sampler
