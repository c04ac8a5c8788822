// Puts rows of an epoch, or parts of rows, into another order.
#include "reorder.hpp"

#include <utility>
#include <vector>

namespace pliant::sampler {

void rows_from_parts(std::span<const RowPart> parts, sdk::EpochRows& rows) {
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
