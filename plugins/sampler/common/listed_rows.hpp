// Rows as a list of ids and a bit a sequence: the plan of samplers that form rows in one pass.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "pliant/sdk/batch_sampler.hpp"
#include "row_bits.hpp"
#include "threads.hpp"

namespace pliant::sampler {

/// Id: uint32_t where all ids fit.
template <class Id>
class ListedRows : public sdk::RowSource {
 public:
  static constexpr size_t kPortion = 16;
  size_t threads = 1;

  /// No rows; room for `count` ids, whose memory is kept from use to use.
  void restart(size_t count) {
    bits_.reset(count);
    at_ = 0;
    if (room_ >= count && room_ / 2 <= count) return;
    ids_.reset();
    ids_.reset(new Id[count + kPortion]);
    room_ = count;
  }
  /// The next row: `held`, then `positions`, each added to `base`. positions[kPortion - 1] may be read.
  void append_row(std::span<const Id> held, Id base, std::span<const uint32_t> positions) {
    const size_t at = at_;
    at_ += held.size() + positions.size();
    bits_.set(at);
    Id* const to = std::copy(held.begin(), held.end(), ids_.get() + at);
    // Portions of a fixed size; what is too much is written over.
    const uint32_t* const from = positions.data();
    size_t i = 0;
    do {
      for (size_t k = 0; k < kPortion; ++k) to[i + k] = base + from[i + k];
      i += kPortion;
    } while (i < positions.size());
  }
  /// After the last row.
  void finish() { bits_.index(); }

  [[nodiscard]] uint64_t row_count() const override { return bits_.row_count(); }
  [[nodiscard]] uint64_t entry_count() const override { return bits_.entry_count(); }
  void write(uint64_t first, uint64_t count, uint64_t* offsets, int64_t* ids) override {
    const uint64_t base = bits_.offsets(first, count, offsets, threads);
    if (ids == nullptr) return;
    const size_t parts = useful_threads(threads, offsets[count]);
    in_parallel(parts, [&](size_t part) {
      const size_t begin = slice(offsets[count], part, parts);
      std::copy_n(ids_.get() + base + begin, slice(offsets[count], part + 1, parts) - begin, ids + begin);
    });
  }

 private:
  RowBits bits_;
  std::unique_ptr<Id[]> ids_;
  size_t room_ = 0;
  size_t at_ = 0;
};

}  // namespace pliant::sampler
