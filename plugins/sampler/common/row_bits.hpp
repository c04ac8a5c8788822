// Where rows begin, in one bit an entry: for plans of many millions of rows.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "threads.hpp"

namespace pliant::sampler {

namespace detail {

/// Where the bits of a byte are; 0 behind the last.
struct BytePlaces {
  std::array<uint64_t, 8> of{};
  uint64_t count = 0;
};
inline constexpr std::array<BytePlaces, 256> kBytePlaces = [] {
  std::array<BytePlaces, 256> all{};
  for (size_t byte = 0; byte < all.size(); ++byte) {
    for (uint64_t bit = 0; bit < 8; ++bit) {
      if ((byte >> bit & 1U) != 0) all[byte].of[all[byte].count++] = bit;
    }
  }
  return all;
}();

}  // namespace detail

/// Bit i says that entry i is the first of a row. 1/8 byte an entry and 1/64 for finding rows.
class RowBits {
 public:
  static constexpr size_t kWordBits = 64;

  /// No entry begins a row; entry 0 must before index().
  void reset(size_t entries) {
    entries_ = entries;
    words_.assign((entries + kWordBits - 1) / kWordBits, 0);
  }
  [[nodiscard]] uint64_t* words() { return words_.data(); }
  void set(size_t entry) { words_[entry / kWordBits] |= uint64_t{1} << (entry % kWordBits); }
  /// Counts the rows; after the last change and before what follows.
  void index(size_t threads = 1) {
    before_.assign(words_.size() / kBlockWords + 2, 0);
    const size_t parts = useful_threads(threads, entries_);
    in_parallel(parts, [&](size_t part) {
      const size_t last = slice(before_.size(), part + 1, parts);
      for (size_t block = slice(before_.size(), part, parts); block < last; ++block) {
        const size_t end = std::min(words_.size(), (block + 1) * kBlockWords);
        for (size_t word = block * kBlockWords; word < end; ++word) before_[block] += ones(words_[word]);
      }
    });
    rows_ = 0;
    for (uint64_t& rows : before_) rows_ += std::exchange(rows, rows_);
  }
  [[nodiscard]] uint64_t row_count() const { return rows_; }
  [[nodiscard]] uint64_t entry_count() const { return entries_; }

  /// The first entry of `row`; entry_count() for row_count().
  [[nodiscard]] uint64_t first_entry(uint64_t row) const {
    if (row >= rows_) return entries_;
    size_t word = block_of(row) * kBlockWords;
    uint64_t left = row - before_[block_of(row)];
    for (uint64_t here = ones(words_[word]); left >= here; here = ones(words_[word])) {
      left -= here;
      ++word;
    }
    uint64_t bits = words_[word];
    for (; left > 0; --left) bits &= bits - 1;
    return word * kWordBits + static_cast<uint64_t>(std::countr_zero(bits));
  }
  /// out[0 .. count] = the first entries of rows first .. first + count, less that of `first`. Says what that one is.
  uint64_t offsets(uint64_t first, uint64_t count, uint64_t* out, size_t threads) const {
    const uint64_t base = first_entry(first);
    const size_t parts = useful_threads(threads, count);
    in_parallel(parts, [&](size_t part) {
      const size_t begin = slice(count, part, parts);
      write(first + begin, slice(count, part + 1, parts) - begin, base, out + begin);
    });
    out[count] = first_entry(first + count) - base;
    return base;
  }

 private:
  static constexpr size_t kBlockWords = 64;

  static uint64_t ones(uint64_t word) {
    word -= word >> 1U & 0x5555555555555555U;
    word = (word & 0x3333333333333333U) + (word >> 2U & 0x3333333333333333U);
    return ((word + (word >> 4U)) & 0x0f0f0f0f0f0f0f0fU) * 0x0101010101010101U >> 56U;
  }
  /// The block in which `row` begins.
  [[nodiscard]] size_t block_of(uint64_t row) const {
    return static_cast<size_t>(std::upper_bound(before_.begin(), before_.end(), row) - before_.begin()) - 1;
  }
  /// The first entries of `count` rows from `first` on, less `base`.
  void write(uint64_t first, uint64_t count, uint64_t base, uint64_t* out) const {
    if (count == 0) return;
    uint64_t* const end = out + count;
    const uint64_t at = first_entry(first);
    size_t word = at / kWordBits;
    uint64_t bits = words_[word] & (~uint64_t{0} << (at % kWordBits));
    // Four at a time: how many a word has is not worth a guess. What is too much is written over.
    constexpr ptrdiff_t kSpill = 68;
    constexpr uint64_t kTop = uint64_t{1} << 63U;
    constexpr uint64_t kMany = 24;  // a byte at a time pays where bytes have a few each
    while (end - out >= kSpill) {
      const uint64_t start = word * kWordBits - base;
      const uint64_t starts = ones(bits);
      uint64_t* const next = out + starts;
      if (starts > kMany) {
        for (uint64_t at_byte = start; bits != 0; at_byte += 8, bits >>= 8U) {
          const detail::BytePlaces& places = detail::kBytePlaces[bits & 255U];
          for (size_t i = 0; i < 8; ++i) out[i] = at_byte + places.of[i];
          out += places.count;
        }
      }
      while (out < next) {
        for (size_t i = 0; i < 4; ++i, bits &= bits - 1) {
          *out++ = start + static_cast<uint64_t>(__builtin_ctzll(bits | kTop));
        }
      }
      out = next;
      bits = words_[++word];
    }
    while (out < end) {
      while (bits == 0) bits = words_[++word];
      *out++ = word * kWordBits + static_cast<uint64_t>(std::countr_zero(bits)) - base;
      bits &= bits - 1;
    }
  }

  size_t entries_ = 0;
  uint64_t rows_ = 0;
  std::vector<uint64_t> words_;
  std::vector<uint64_t> before_;  ///< rows that begin before each block of words
};

}  // namespace pliant::sampler
