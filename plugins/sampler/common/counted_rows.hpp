// Rows whose ids count up: the plan of samplers that keep the order, in a bit a sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "pliant/sdk/batch_sampler.hpp"
#include "row_bits.hpp"
#include "threads.hpp"

namespace pliant::sampler {

class CountedRows : public sdk::RowSource {
 public:
  RowBits bits;
  size_t threads = 1;

  [[nodiscard]] uint64_t row_count() const override { return bits.row_count(); }
  [[nodiscard]] uint64_t entry_count() const override { return bits.entry_count(); }
  void write(uint64_t first, uint64_t count, uint64_t* offsets, int64_t* ids) override {
    const uint64_t base = bits.offsets(first, count, offsets, threads);
    if (ids == nullptr) return;
    const size_t parts = useful_threads(threads, offsets[count]);
    in_parallel(parts, [&](size_t part) {
      const size_t begin = slice(offsets[count], part, parts);
      std::iota(ids + begin, ids + slice(offsets[count], part + 1, parts), static_cast<int64_t>(base + begin));
    });
  }
};

}  // namespace pliant::sampler
