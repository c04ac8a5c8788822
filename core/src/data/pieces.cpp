// The sums of entries of a batch.
#include "data/pieces.hpp"

#include <algorithm>

#include "data/digest.hpp"

namespace pliant::data {

namespace {

__extension__ typedef unsigned __int128 Wide;

/// Loss tokens among the first `tokens` of a sequence, as if they were spread evenly.
int64_t share(int64_t loss_tokens, int64_t tokens, int64_t length) {
  const Wide product = static_cast<Wide>(static_cast<uint64_t>(loss_tokens)) * static_cast<uint64_t>(tokens);
  return static_cast<int64_t>(static_cast<uint64_t>(product / static_cast<uint64_t>(length)));
}

/// The digest of a sequence's tokens before `token`: pieces are differences, so that they add up to the sequence's.
uint64_t digest_before(uint64_t whole, int64_t token) {
  return token == 0 ? 0 : mix64(whole ^ static_cast<uint64_t>(token));
}

}  // namespace

Entries entries_of(const Batch& batch, RowRange rows) {
  const uint64_t begin = batch.offsets[static_cast<size_t>(rows.first)];
  const uint64_t count = batch.offsets[static_cast<size_t>(rows.first + rows.count)] - begin;
  const std::span<const Piece> pieces(batch.pieces);
  return {batch.epoch, std::span(batch.ids).subspan(begin, count),
          pieces.empty() ? pieces : pieces.subspan(begin, count)};
}

EntrySums sum_entries(const Entries& entries, const Dataset& dataset) {
  EntrySums sums;
  const auto& weights = dataset.loss_tokens.empty() ? dataset.lengths : dataset.loss_tokens;
  if (entries.pieces.empty()) {
    sums.sequences = static_cast<int64_t>(entries.ids.size());
    for (const int64_t id : entries.ids) {
      const int64_t length = dataset.lengths[static_cast<size_t>(id)];
      sums.tokens += length;
      sums.longest = std::max(sums.longest, length);
      sums.loss_tokens += weights[static_cast<size_t>(id)];
    }
    sums.digest = sample_digest(entries.epoch, entries.ids);
    return sums;
  }
  for (size_t i = 0; i < entries.ids.size(); ++i) {
    const int64_t id = entries.ids[i];
    const int64_t length = dataset.lengths[static_cast<size_t>(id)];
    const int64_t weight = weights[static_cast<size_t>(id)];
    const uint64_t whole = sample_digest(entries.epoch, std::span(&id, 1));
    const Piece& piece = entries.pieces[i];
    const int64_t end = piece.first + piece.count;
    sums.sequences += piece.last ? 1 : 0;
    sums.tokens += piece.count;
    sums.longest = std::max(sums.longest, piece.count);
    sums.loss_tokens += share(weight, end, length) - share(weight, piece.first, length);
    sums.digest += (piece.last ? whole : digest_before(whole, end)) - digest_before(whole, piece.first);
  }
  return sums;
}

int64_t loss_tokens_of(const Dataset& dataset, int64_t id, int64_t first, int64_t count) {
  const auto at = static_cast<size_t>(id);
  const int64_t length = dataset.lengths[at];
  const int64_t weight = dataset.loss_tokens.empty() ? length : dataset.loss_tokens[at];
  if (count == length) return weight;
  return share(weight, first + count, length) - share(weight, first, length);
}

int64_t Truncations::used_of(int64_t id, int64_t length) const {
  const auto found = std::lower_bound(ids_.begin(), ids_.end(), id);
  return found == ids_.end() || *found != id ? length : kept_[static_cast<size_t>(found - ids_.begin())];
}

}  // namespace pliant::data
