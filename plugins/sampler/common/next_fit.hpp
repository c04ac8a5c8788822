// Next fit: fills one pack at a time, in order. Many stretches of the sequences are filled at once, each as if a pack
// began with it; where a true pack then begins where a guessed one does, the rest of the stretch is right.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "row_bits.hpp"
#include "threads.hpp"

namespace pliant::sampler {

namespace detail {

/// The pack that is being filled. {0, 0}: the next sequence begins one.
struct PackFill {
  int64_t room = 0;
  uint64_t sequences = 0;
};

struct NextFitRule {
  int64_t budget = 0;
  uint64_t most_in_pack = 0;  ///< not 0 where counted
};

/// The bits of up to 64 sequences: which of them begin a pack.
template <bool kCounted>
uint64_t fill_word(const int32_t* sizes, size_t count, const NextFitRule& rule, PackFill& fill) {
  uint64_t bits = 0;
  int64_t room = fill.room;
  uint64_t sequences = fill.sequences;
  for (size_t i = 0; i < count; ++i) {
    const int64_t left = room - sizes[i];
    const int64_t fresh = rule.budget - sizes[i];
    bool begins = left < 0;
    if constexpr (kCounted) {
      begins = begins || sequences == rule.most_in_pack;
      sequences = begins ? 1 : sequences + 1;
    }
    room = begins ? fresh : left;
    bits |= uint64_t{begins ? 1U : 0U} << i;
  }
  fill = {room, sequences};
  return bits;
}

/// kLanes stretches of `words` * 64 sequences, one after the other in `sizes` and `bits`; says how each ends. Budget
/// and most_in_pack fit 31 bits. Four stretches share a vector: blocks of 4 x 4 sizes are turned so that a vector has
/// one size of each.
template <bool kCounted>
class Lanes {
 public:
  static constexpr size_t kLanes = 8;

  static void fill(const int32_t* sizes, size_t words, const NextFitRule& rule, uint64_t* bits, PackFill* ends) {
    const Ints budget = every(static_cast<int32_t>(rule.budget));
    const Ints most = every(static_cast<int32_t>(rule.most_in_pack));
    std::array<Ints, kVectors> room{};
    std::array<Ints, kVectors> count{};
    auto* const halves = reinterpret_cast<uint32_t*>(bits);
    for (size_t half = 0; half < 2 * words; ++half) {
      std::array<Ints, kVectors> begun{};
      for (size_t at = half * 32; at < half * 32 + 32; at += 4) {
        for (size_t v = 0; v < kVectors; ++v) {
          const std::array<Ints, 4> turned = turn(sizes + v * 4 * words * 64 + at, words * 64);
          for (const Ints& size : turned) {
            const Ints left = room[v] - size;
            Ints begins = left >> 31;
            if constexpr (kCounted) {
              begins |= count[v] == most;
              count[v] = (count[v] & ~begins) + 1;
            }
            room[v] = left + (begins & (budget - room[v]));
            begun[v] = reinterpret_cast<Ints>(reinterpret_cast<Words>(begun[v]) >> 1U) | (begins & kTop);
          }
        }
      }
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const auto word = static_cast<uint32_t>(begun[lane / 4][lane % 4]);
        std::memcpy(halves + lane * words * 2 + half, &word, sizeof(word));
      }
    }
    for (size_t lane = 0; lane < kLanes; ++lane) {
      ends[lane] = {room[lane / 4][lane % 4], static_cast<uint64_t>(count[lane / 4][lane % 4])};
    }
  }

 private:
  static constexpr size_t kVectors = kLanes / 4;
  using Ints = int32_t __attribute__((vector_size(16)));
  using Words = uint32_t __attribute__((vector_size(16)));
  static constexpr int32_t kTop = std::numeric_limits<int32_t>::min();

  static Ints every(int32_t value) { return Ints{value, value, value, value}; }
  static Ints load(const int32_t* from) {
    Ints loaded;
    std::memcpy(&loaded, from, sizeof(loaded));
    return loaded;
  }
  /// Result i has element i of each of the four rows `stride` apart.
  static std::array<Ints, 4> turn(const int32_t* rows, size_t stride) {
    const Ints a = load(rows);
    const Ints b = load(rows + stride);
    const Ints c = load(rows + 2 * stride);
    const Ints d = load(rows + 3 * stride);
    const Ints ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const Ints cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const Ints ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Ints cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    return {__builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
            __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5), __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7)};
  }
};

/// Puts right the stretch of `words` that was filled as if a pack began with it and then ended as `guessed`: it begins
/// with `fill`. Leaves how it ends there.
template <bool kCounted>
void mend(const int32_t* sizes, size_t words, const NextFitRule& rule, const PackFill& guessed, uint64_t* bits,
          PackFill& fill) {
  for (size_t word = 0; word < words; ++word) {
    const uint64_t right = fill_word<kCounted>(sizes + word * RowBits::kWordBits, RowBits::kWordBits, rule, fill);
    const uint64_t both = right & bits[word];
    if (both == 0) {
      bits[word] = right;
      continue;
    }
    const uint64_t before = (both & (~both + 1)) - 1;  // the bits below the first that both have
    bits[word] = (right & before) | (bits[word] & ~before);
    fill = guessed;
    return;
  }
}

/// Stretches are filled at once, then mended one after the other.
template <bool kCounted>
void next_fit(std::span<const int32_t> sizes, const NextFitRule& rule, size_t threads, uint64_t* bits) {
  using Side = Lanes<kCounted>;
  constexpr size_t kWord = RowBits::kWordBits;
  constexpr size_t kShortest = 32;  // words of a stretch that are worth it
  constexpr auto kMost31 = static_cast<uint64_t>(std::numeric_limits<int32_t>::max());
  const size_t parts = useful_threads(threads, sizes.size());
  size_t words = sizes.size() / kWord / (parts * Side::kLanes);
  if (words < kShortest || static_cast<uint64_t>(rule.budget) > kMost31 || rule.most_in_pack > kMost31) words = 0;
  std::vector<PackFill> ends(parts * Side::kLanes);
  if (words > 0) {
    in_parallel(parts, [&](size_t part) {
      const size_t at = part * Side::kLanes * words;
      Side::fill(sizes.data() + at * kWord, words, rule, bits + at, &ends[part * Side::kLanes]);
    });
  }
  PackFill fill;
  size_t at = 0;
  for (size_t stretch = 0; words > 0 && stretch < ends.size(); ++stretch, at += words) {
    mend<kCounted>(sizes.data() + at * kWord, words, rule, ends[stretch], bits + at, fill);
  }
  for (size_t i = at * kWord; i < sizes.size(); i += kWord) {
    bits[i / kWord] = fill_word<kCounted>(sizes.data() + i, std::min(kWord, sizes.size() - i), rule, fill);
  }
}

}  // namespace detail

/// Packs of sequences `sizes` (1 .. budget) in order: `rows` says which begin one. O(n). most_in_pack 0 = no limit. The
/// same for every number of threads.
inline void next_fit(std::span<const int32_t> sizes, int64_t budget, uint64_t most_in_pack, size_t threads,
                     RowBits& rows) {
  rows.reset(sizes.size());
  if (most_in_pack == 0 || most_in_pack >= sizes.size()) {
    detail::next_fit<false>(sizes, {budget, 0}, threads, rows.words());
  } else {
    detail::next_fit<true>(sizes, {budget, most_in_pack}, threads, rows.words());
  }
  rows.index(threads);
}

}  // namespace pliant::sampler
