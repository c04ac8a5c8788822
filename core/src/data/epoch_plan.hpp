// EpochPlan: what a sampler answered for one epoch, checked: every sequence is in exactly one row or dropped with a
// reason.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "pliant/abi/batch_sampler.h"
#include "pliant/batches.hpp"

namespace pliant::data {

/// A sampler as the core calls it.
struct Sampler {
  std::string name;  ///< "sampler 'seqlen'", for messages
  const pliant_batch_sampler* slots = nullptr;
  void* self = nullptr;
  /// What to report when a slot answers with another status than PLIANT_OK.
  std::function<Error(int32_t status, const pliant_error& error)> refusal;
};

struct EpochPlan {
  int64_t epoch = -1;
  std::vector<uint64_t> offsets;  ///< row i is ids[offsets[i] .. offsets[i+1])
  std::vector<int64_t> ids;
  std::vector<Piece> pieces;                            ///< of each of `ids`; empty = all sequences are whole
  std::vector<int64_t> truncated;                       ///< ids of sequences that lose tokens, ascending
  std::map<std::string, std::vector<int64_t>> dropped;  ///< by reason, ascending
  EpochSummary summary;
};

/// A set that a job can be trained on: not empty, lengths >= 1, loss tokens 0..length, sums that fit int64. Exit 2.
Result<> check_dataset(const Dataset& dataset);

/// Asks `sampler` for `epoch` of `dataset` (checked before) and checks the answer; O(sequences). Exit 2 when no row is
/// left; exit 3 when the sampler breaks its contract.
Result<EpochPlan> plan_epoch(const Sampler& sampler, const Dataset& dataset, uint64_t seed, int64_t epoch,
                             int64_t rows_per_batch);

/// Rows [first, first + count) of `plan` as a batch.
Batch cut_batch(const EpochPlan& plan, const Dataset& dataset, int64_t index, uint64_t first, uint64_t count);

}  // namespace pliant::data
