// Batches whose rows have the same number of sequences.
#include "equal_batches.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "reorder.hpp"

namespace pliant::sampler {

namespace {

/// How many parts of `count` entries the rows of `pool` have.
uint64_t parts_of(const std::vector<RowPart>& pool, uint64_t count) {
  uint64_t parts = 0;
  for (const RowPart& row : pool) parts += row.count() / count;
  return parts;
}

/// Moves `batch` parts of the same number of entries, as many as can be, from `pool` to `out`: from the rows that are
/// only just large enough first. The pool has at least `batch` entries.
void take_equal_parts(std::vector<RowPart>& pool, uint64_t batch, std::vector<RowPart>& out) {
  uint64_t low = 1;
  uint64_t high = 1;
  for (const RowPart& row : pool) high = std::max(high, row.count());
  while (low < high) {  // the more entries, the fewer parts
    const uint64_t middle = high - (high - low) / 2;
    if (parts_of(pool, middle) >= batch) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  std::stable_sort(pool.begin(), pool.end(), [](const RowPart& a, const RowPart& b) { return a.count() < b.count(); });
  uint64_t made = 0;
  for (RowPart& row : pool) {
    for (; made < batch && row.count() >= low; ++made) {
      out.push_back({row.begin, row.begin + low});
      row.begin += low;
    }
  }
  pool.erase(std::remove_if(pool.begin(), pool.end(), [](const RowPart& row) { return row.count() == 0; }), pool.end());
}

/// Batches of what is left when rows of the same number do not fill one any more; the last may be short.
void part_leftovers(std::vector<RowPart> pool, uint64_t batch, bool fill, std::vector<RowPart>& out) {
  while (!pool.empty()) {
    uint64_t entries = 0;
    bool equal = true;
    for (const RowPart& row : pool) {
      entries += row.count();
      equal = equal && row.count() == pool.front().count();
    }
    if (equal && pool.size() < batch && !fill) {
      out.insert(out.end(), pool.begin(), pool.end());
      return;
    }
    take_equal_parts(pool, std::min(batch, entries), out);
  }
}

}  // namespace

void make_batches_equal(uint64_t batch, bool fill, sdk::EpochRows& rows) {
  std::map<uint64_t, std::vector<RowPart>> open;
  std::vector<RowPart> out;
  out.reserve(rows.row_count());
  for (size_t row = 0; row < rows.row_count(); ++row) {
    const RowPart part{rows.offsets[row], rows.offsets[row + 1]};
    std::vector<RowPart>& alike = open[part.count()];
    alike.push_back(part);
    if (alike.size() < batch) continue;
    out.insert(out.end(), alike.begin(), alike.end());
    alike.clear();
  }
  std::vector<RowPart> pool;
  for (const auto& [count, alike] : open) pool.insert(pool.end(), alike.begin(), alike.end());
  part_leftovers(std::move(pool), batch, fill, out);
  rows_from_parts(out, rows);
}

}  // namespace pliant::sampler
