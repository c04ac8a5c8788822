// Rows as a list of ids and a bit a sequence: the plan of samplers that form rows in one pass.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "pliant/sdk/batch_sampler.hpp"
#include "row_bits.hpp"
#include "threads.hpp"

namespace pliant::sampler {

/// Id: uint32_t where all ids fit.
template <class Id>
class ListedRows : public sdk::RowSource {
 public:
  size_t threads = 1;

  /// No rows; room for `count` ids, whose memory is kept from use to use.
  void restart(size_t count) {
    bits_.reset(count);
    at_ = 0;
    if (room_ >= count && room_ / 2 <= count) return;
    ids_.reset();
    ids_.reset(new Id[count]);
    room_ = count;
  }
  /// The rest of the row that was begun last. kPortion: ids[kPortion - 1] may be read.
  template <size_t kPortion>
  void append(const Id* ids, size_t count) {
    Id* const to = ids_.get() + at_;
    at_ += count;
    if (room_ - at_ + count >= kPortion) {
      std::array<Id, kPortion> portion;  // of a fixed size; what is too much is written over
      std::memcpy(portion.data(), ids, sizeof(portion));
      std::memcpy(to, portion.data(), sizeof(portion));
    } else {
      std::copy_n(ids, count, to);
    }
  }
  void begin_row() { bits_.set(at_); }
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
