// Checking that pieces make up their sequences, and the sums of entries of a batch.
#include "data/pieces.hpp"

#include <fmt/format.h>

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

[[nodiscard]] tl::unexpected<Error> wrong(std::string what) {
  return failed(Status::kInternal, std::move(what), ExitCode::kPlugin);
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

Result<PieceCounts> check_pieces(std::span<const int64_t> ids, const Lengths& lengths, std::vector<Piece>& pieces) {
  PieceCounts counts;
  std::vector<uint64_t> entries;  // whole sequences need no second look: whoever marks ids finds those used twice
  for (uint64_t i = 0; i < ids.size(); ++i) {
    const int64_t length = lengths[static_cast<size_t>(ids[i])];
    if (pieces[i].first < 0 || pieces[i].count < 1 || pieces[i].count > length - pieces[i].first) {
      return wrong(fmt::format("a piece of sequence {} begins at token {} and has {} tokens; the sequence has {}",
                               ids[i], pieces[i].first, pieces[i].count, length));
    }
    if (pieces[i].count < length) {
      entries.push_back(i);
    } else {
      ++counts.sequences;
    }
  }
  std::sort(entries.begin(), entries.end(), [&](uint64_t a, uint64_t b) {
    return std::pair(ids[a], pieces[a].first) < std::pair(ids[b], pieces[b].first);
  });
  int64_t end = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const uint64_t at = entries[i];
    Piece& piece = pieces[at];
    if (piece.first != end) {
      return wrong(fmt::format("a piece of sequence {} begins at token {}, after {} tokens in pieces", ids[at],
                               piece.first, end));
    }
    piece.last = i + 1 == entries.size() || ids[entries[i + 1]] != ids[at];
    end = piece.last ? 0 : end + piece.count;
    if (!piece.last) continue;
    ++counts.sequences;
    const int64_t cut = lengths[static_cast<size_t>(ids[at])] - piece.first - piece.count;
    if (cut == 0) continue;
    counts.truncated.push_back(ids[at]);
    counts.tokens_cut += cut;
  }
  return counts;
}

}  // namespace pliant::data
