// Concatenation: all sequences one after the other, cut every so many tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sampler {

/// Rows of exactly `row_tokens` tokens, the last one of what is left. lengths[i] >= 1 is that of sequence i. `rows` is
/// as restart() leaves it.
inline void concatenate(std::span<const int64_t> ids, std::span<const int32_t> lengths, int64_t row_tokens,
                        sdk::EpochRows& rows) {
  int64_t room = row_tokens;
  size_t at = 0;
  for (const int64_t id : ids) {
    const int64_t length = lengths[static_cast<size_t>(id)];
    for (int64_t first = 0; first < length; ++at) {
      if (at >= rows.ids.size() || at >= rows.pieces.size()) {
        rows.ids.resize(at + at / 2 + ids.size());
        rows.pieces.resize(rows.ids.size());
      }
      const int64_t count = std::min(room, length - first);
      rows.ids[at] = id;
      rows.pieces[at] = {first, count};
      first += count;
      room -= count;
      if (room > 0) continue;
      rows.offsets.push_back(at + 1);
      room = row_tokens;
    }
  }
  if (room < row_tokens) rows.offsets.push_back(at);
  rows.ids.resize(at);
  rows.pieces.resize(at);
  rows.sequence_count = ids.size();
}

/// Drops the rows from `kept` on for `reason`: a sequence that also has pieces before is truncated. The pieces of a
/// sequence follow each other.
inline void drop_rows_from(uint64_t kept, int32_t reason, sdk::EpochRows& rows) {
  const uint64_t entries = rows.offsets[kept];
  if (entries == rows.ids.size()) return;
  for (uint64_t i = entries; i < rows.ids.size(); ++i) {
    if (rows.pieces[i].first != 0) continue;
    rows.drop(rows.ids[i], reason);
    --rows.sequence_count;
  }
  rows.truncated_count += rows.pieces[entries].first != 0 ? 1 : 0;
  rows.ids.resize(entries);
  rows.pieces.resize(entries);
  rows.offsets.resize(kept + 1);
}

}  // namespace pliant::sampler
