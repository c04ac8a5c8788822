// EpochPlan: one epoch of a sampler, checked from its first row to its last: every sequence is in exactly one row or
// dropped with a reason. The rows stay with the sampler and are read when a batch is cut.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "data/pieces.hpp"
#include "data/row_source.hpp"
#include "pliant/batches.hpp"

namespace pliant::data {

/// A set that a job can be trained on: not empty, lengths >= 1, loss tokens 0..length. kInput.
Result<> check_dataset(const Dataset& dataset);

/// What a look at all rows told.
struct EpochFacts {
  EpochSummary summary;
  Truncations truncated;
  std::map<std::string, std::vector<int64_t>> dropped;  ///< by reason, ascending
  uint64_t digest = 0;                                  ///< of all rows, in their order
};

/// Rows as a batch.
Batch batch_of(RowBlock block, const Dataset& dataset, const Truncations& truncated, int64_t epoch, int64_t index);

class EpochPlan {
 public:
  /// Asks `sampler` (which must outlive it and plans no other epoch meanwhile) and checks the answer; O(entries).
  /// Memory: a bit a sequence, and what it keeps. kInput when no row is left; kPlugin when the sampler breaks its
  /// contract. `inputs.dataset` was checked before.
  static Result<EpochPlan> make(const Sampler& sampler, EpochInputs inputs);

  [[nodiscard]] int64_t epoch() const { return inputs_->epoch; }
  [[nodiscard]] const EpochFacts& facts() const { return facts_; }
  [[nodiscard]] const EpochSummary& summary() const { return facts_.summary; }
  /// Rows [first, first + count), which are there, as batch `index`.
  Result<Batch> cut(int64_t index, uint64_t first, uint64_t count);

 private:
  EpochPlan() = default;
  const Sampler* sampler_ = nullptr;
  std::unique_ptr<const EpochInputs> inputs_;  // rows_ views it
  std::unique_ptr<RowSource> rows_;
  EpochFacts facts_;
};

}  // namespace pliant::data
