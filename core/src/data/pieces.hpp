// Pieces: rows that hold parts of sequences, weighed.
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
/// Loss tokens of tokens [first, first + count) of sequence `id`.
int64_t loss_tokens_of(const Dataset& dataset, int64_t id, int64_t first, int64_t count);

/// The sequences that lose tokens at their end.
class Truncations {
 public:
  /// In ascending order of id.
  void add(int64_t id, int64_t tokens_kept) {
    ids_.push_back(id);
    kept_.push_back(tokens_kept);
  }
  [[nodiscard]] const std::vector<int64_t>& ids() const { return ids_; }
  /// Tokens of sequence `id` that are used; `length` where it loses none.
  [[nodiscard]] int64_t used_of(int64_t id, int64_t length) const;

 private:
  std::vector<int64_t> ids_;
  std::vector<int64_t> kept_;
};

}  // namespace pliant::data
