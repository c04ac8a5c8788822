// Sequences for items, packs that are too small, the last batch.
#include "finish.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "cost_windows.hpp"
#include "equal_batches.hpp"

namespace pliant::sampler {

namespace {

/// Keeps the rows for which keep(row) holds; the sequences of the others are dropped for `reason`. Sequences of rows
/// that may go are in one piece.
template <class Keep>
void keep_rows(std::span<const int32_t> lengths, sdk::EpochRows& rows, PackDrop reason, Keep&& keep) {
  write_ids_out(rows);
  uint64_t entries = 0;
  size_t kept = 0;
  for (size_t row = 0; row < rows.row_count(); ++row) {
    const bool stays = keep(row);
    const uint64_t begin = rows.offsets[row];
    const uint64_t end = rows.offsets[row + 1];
    rows.offsets[kept] = entries;  // kept <= row: read before
    for (uint64_t i = begin; i < end; ++i) {
      if (!stays) {
        rows.drop(rows.ids[i], reason);
        if (rows.pieces.empty()) continue;
        --rows.sequence_count;
        rows.truncated_count -= rows.pieces[i].count < lengths[static_cast<size_t>(rows.ids[i])] ? 1 : 0;
        continue;
      }
      rows.ids[entries] = rows.ids[i];
      if (!rows.pieces.empty()) rows.pieces[entries] = rows.pieces[i];
      ++entries;
    }
    kept += stays ? 1 : 0;
  }
  rows.offsets.resize(kept + 1);
  rows.offsets[kept] = entries;
  rows.ids.resize(entries);
  if (!rows.pieces.empty()) rows.pieces.resize(entries);
}

/// Parts rows of the last batch, the one with most entries first, until it has `batch` rows.
void fill_last_batch(sdk::EpochRows& rows, uint64_t batch) {
  const uint64_t in_last = rows.row_count() % batch;
  if (in_last == 0) return;
  const uint64_t first = rows.row_count() - in_last;
  const std::vector<uint64_t> ends(rows.offsets.begin() + static_cast<std::ptrdiff_t>(first), rows.offsets.end());
  std::vector<uint64_t> shares(in_last, 1);
  // Entries per row, in order of (share left, row): at each turn the row whose shares are largest gets one more.
  const auto largest_share = [&](size_t row) { return (ends[row + 1] - ends[row] + shares[row] - 1) / shares[row]; };
  std::set<std::pair<uint64_t, size_t>> by_share;
  for (size_t row = 0; row < in_last; ++row) by_share.emplace(largest_share(row), in_last - row);
  for (uint64_t made = in_last; made < batch && by_share.rbegin()->first > 1; ++made) {
    const size_t row = in_last - by_share.rbegin()->second;
    by_share.erase(std::prev(by_share.end()));
    ++shares[row];
    by_share.emplace(largest_share(row), in_last - row);
  }
  rows.offsets.resize(first + 1);
  for (size_t row = 0; row < in_last; ++row) {
    const uint64_t entries = ends[row + 1] - ends[row];
    for (uint64_t share = 1; share <= shares[row]; ++share) {
      rows.offsets.push_back(ends[row] + entries * share / shares[row]);
    }
  }
}

}  // namespace

void name_sequences(const Items& items, sdk::EpochRows& rows) {
  if (rows.ids_count_up) rows.ids.clear();
  if (!items.pieces.empty()) {
    rows.pieces.resize(rows.entry_count());
    for (size_t i = 0; i < rows.pieces.size(); ++i) {
      rows.pieces[i] = items.pieces[rows.ids_count_up ? i : static_cast<size_t>(rows.ids[i])];
    }
    rows.sequence_count = items.sequence_count;
    rows.truncated_count = items.truncated_count;
  }
  if (items.ids.empty()) return;
  if (rows.ids_count_up) {
    rows.ids.assign(items.ids.begin(), items.ids.begin() + static_cast<std::ptrdiff_t>(rows.entry_count()));
    rows.ids_count_up = false;
    return;
  }
  for (int64_t& id : rows.ids) id = items.ids[static_cast<size_t>(id)];
}

void write_ids_out(sdk::EpochRows& rows) {
  if (!rows.ids_count_up) return;
  rows.ids.resize(rows.entry_count());
  std::iota(rows.ids.begin(), rows.ids.end(), int64_t{0});
  rows.ids_count_up = false;
}

bool changes_rows(const PackOptions& options) {
  return options.min_sequences > 1 || options.tail == "fill" || options.tail == "drop" || options.same_sequences ||
         options.cost_window != 0;
}

void finish_rows(const PackOptions& options, const sdk::EpochRequest& request, sdk::EpochRows& rows) {
  if (!changes_rows(options)) return;
  const std::span<const int32_t> lengths = request.lengths;
  const auto fewest = static_cast<uint64_t>(options.min_sequences);
  if (fewest > 1) {
    std::vector<uint64_t> sizes(rows.row_count());
    for (size_t row = 0; row < sizes.size(); ++row) sizes[row] = rows.offsets[row + 1] - rows.offsets[row];
    keep_rows(lengths, rows, kPackBelowMin, [&](size_t row) { return sizes[row] >= fewest; });
  }
  const auto batch = static_cast<uint64_t>(request.rows_per_batch);
  if (options.same_sequences) {
    write_ids_out(rows);
    make_batches_equal(batch, options.tail == "fill", rows);
  }
  if (options.tail == "drop") {
    const uint64_t full = rows.row_count() - rows.row_count() % batch;
    keep_rows(lengths, rows, kPackIncompleteBatch, [&](size_t row) { return row < full; });
  } else if (options.tail == "fill" && !options.same_sequences) {
    fill_last_batch(rows, batch);
  }
  if (options.cost_window != 0) {
    write_ids_out(rows);
    sort_in_cost_windows(request, static_cast<uint64_t>(options.cost_window), options.window_length(), rows);
  }
}

}  // namespace pliant::sampler
