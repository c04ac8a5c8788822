// Puts rows into the order of their first item.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sampler {

/// Puts the rows into the order of their smallest item, and the items of each row into ascending order. Rows hold each
/// of the items 0 .. count-1 once; fewer than 2^32.
inline void sort_by_first_item(size_t count, sdk::EpochRows& rows) {
  std::vector<uint32_t> row_of(count);
  for (size_t row = 0; row < rows.row_count(); ++row) {
    for (uint64_t i = rows.offsets[row]; i < rows.offsets[row + 1]; ++i) {
      row_of[static_cast<size_t>(rows.ids[i])] = static_cast<uint32_t>(row);
    }
  }
  std::vector<uint32_t> sizes(rows.row_count());
  for (size_t row = 0; row < sizes.size(); ++row) {
    sizes[row] = static_cast<uint32_t>(rows.offsets[row + 1] - rows.offsets[row]);
  }
  std::vector<uint64_t> begins(sizes.size(), ~uint64_t{0});
  uint64_t end = 0;
  size_t row_at = 0;
  for (size_t item = 0; item < count; ++item) {
    const uint32_t row = row_of[item];
    if (begins[row] == ~uint64_t{0}) {
      begins[row] = end;
      end += sizes[row];
      rows.offsets[++row_at] = end;
    }
    rows.ids[begins[row]++] = static_cast<int64_t>(item);
  }
}

}  // namespace pliant::sampler
