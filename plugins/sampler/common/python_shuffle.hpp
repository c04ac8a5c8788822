// The shuffle of Python's random.Random(n).shuffle, so that a seed gives the order that DeepSpeed users know.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace pliant::sampler {

/// The integer `seed + epoch * 2^64` in 32-bit words, lowest first, without leading zero words but at least one: what
/// Python makes of that integer. Epoch 0 is random.Random(seed); epoch e is random.Random(seed + (e << 64)).
inline std::vector<uint32_t> seed_words(uint64_t seed, uint64_t epoch = 0) {
  std::vector<uint32_t> words{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                              static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32)};
  while (words.size() > 1 && words.back() == 0) words.pop_back();
  return words;
}

/// A seed sequence for std::mt19937 that fills the state as MT19937's published array initialisation does.
/// std::seed_seq fills it in another way.
class ArraySeed {
 public:
  using result_type = uint32_t;
  explicit ArraySeed(std::span<const uint32_t> key) : key_(key) {}

  template <class Iterator>
  void generate(Iterator first, Iterator last) {
    const auto state = mixed_state();
    std::copy_n(state.begin(), std::min(static_cast<size_t>(last - first), state.size()), first);
  }

 private:
  static constexpr size_t kWords = std::mt19937::state_size;

  [[nodiscard]] std::array<uint32_t, kWords> mixed_state() const {
    std::array<uint32_t, kWords> state{};
    state[0] = 19650218U;
    for (size_t i = 1; i < kWords; ++i) state[i] = 1812433253U * folded(state[i - 1]) + static_cast<uint32_t>(i);
    size_t at = 1;
    const auto advance = [&] {
      if (++at < kWords) return;
      state[0] = state[kWords - 1];
      at = 1;
    };
    const size_t rounds = std::max(kWords, key_.size());
    for (size_t round = 0, j = 0; round < rounds; ++round) {
      state[at] = (state[at] ^ (folded(state[at - 1]) * 1664525U)) + key_[j] + static_cast<uint32_t>(j);
      advance();
      j = (j + 1) % key_.size();
    }
    for (size_t round = 1; round < kWords; ++round) {
      state[at] = (state[at] ^ (folded(state[at - 1]) * 1566083941U)) - static_cast<uint32_t>(at);
      advance();
    }
    state[0] = 0x80000000U;
    return state;
  }
  static uint32_t folded(uint32_t word) { return word ^ (word >> 30); }

  std::span<const uint32_t> key_;
};

/// Uniform in [0, bound), bound >= 1, drawing what Python draws: just enough bits, again while too large.
inline uint64_t draw_below(std::mt19937& engine, uint64_t bound) {
  const auto bits = static_cast<unsigned>(std::bit_width(bound));
  for (;;) {
    uint64_t drawn = 0;
    if (bits <= 32) {
      drawn = static_cast<uint32_t>(engine()) >> (32 - bits);
    } else {
      drawn = static_cast<uint32_t>(engine());
      drawn |= uint64_t{static_cast<uint32_t>(engine()) >> (64 - bits)} << 32;
    }
    if (drawn < bound) return drawn;
  }
}

/// Shuffles in place as random.Random(n).shuffle does, `key` being the words of |n|. `key` is not empty.
template <class T>
void python_shuffle(std::span<T> items, std::span<const uint32_t> key) {
  ArraySeed seed(key);
  std::mt19937 engine(seed);
  for (size_t i = items.size(); i-- > 1;) {
    std::swap(items[i], items[static_cast<size_t>(draw_below(engine, i + 1))]);
  }
}

}  // namespace pliant::sampler
