// Pieces: rows that hold parts of sequences, checked and weighed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "pliant/batches.hpp"
#include "pliant/plan.hpp"

namespace pliant::data {

/// Entries of rows that follow each other; `pieces` is empty when all are whole sequences.
struct Entries {
  int64_t epoch = 0;
  std::span<const int64_t> ids;
  std::span<const Piece> pieces;
};
Entries entries_of(const Batch& batch, RowRange rows);

/// What entries are worth. A sequence counts where its last piece is. The loss tokens of a sequence in pieces are
/// shared out by tokens; the pieces of one that is used up add up to all of them.
struct EntrySums {
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t loss_tokens = 0;
  int64_t longest = 0;  ///< tokens of the longest entry
  uint64_t digest = 0;
};
EntrySums sum_entries(const Entries& entries, const Dataset& dataset);

struct PieceCounts {
  uint64_t sequences = 0;
  std::vector<int64_t> truncated;  ///< ids of sequences that lose tokens at their end, ascending
  int64_t tokens_cut = 0;
};

/// Holds `pieces` (of the sequences `ids`, entry by entry; ids are in range) to the contract and sets `last` of each.
/// The error's message says what is wrong.
Result<PieceCounts> check_pieces(std::span<const int64_t> ids, const Lengths& lengths, std::vector<Piece>& pieces);

}  // namespace pliant::data
