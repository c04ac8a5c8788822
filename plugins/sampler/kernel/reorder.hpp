// Puts rows of an epoch, or parts of rows, into another order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sampler {

/// Entries [begin, end) of an epoch.
struct RowPart {
  uint64_t begin = 0;
  uint64_t end = 0;
  [[nodiscard]] uint64_t count() const { return end - begin; }
};

/// `parts`, which cover every entry once and are not empty, become the rows. The ids of `rows` are written out.
inline void rows_from_parts(std::span<const RowPart> parts, sdk::EpochRows& rows) {
  std::vector<int64_t> ids;
  std::vector<sdk::Piece> pieces;
  ids.reserve(rows.entry_count());
  pieces.reserve(rows.pieces.empty() ? 0 : rows.entry_count());
  rows.offsets.assign(1, 0);
  for (const RowPart& part : parts) {
    const auto begin = static_cast<std::ptrdiff_t>(part.begin);
    const auto end = static_cast<std::ptrdiff_t>(part.end);
    ids.insert(ids.end(), rows.ids.begin() + begin, rows.ids.begin() + end);
    if (!rows.pieces.empty()) pieces.insert(pieces.end(), rows.pieces.begin() + begin, rows.pieces.begin() + end);
    rows.offsets.push_back(ids.size());
  }
  rows.ids = std::move(ids);
  rows.pieces = std::move(pieces);
}

}  // namespace pliant::sampler
