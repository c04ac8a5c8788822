// Balancer: which rank computes which rows of a global batch, so that ranks wait little for each other; and how much
// they wait. Never which rows a batch has, their order in the sum, or what a row weighs.
//
//   const pliant::Config config = pliant::Config::open("pliant.toml", {"balancer"});
//   const pliant::Balancer balancer(config);
//   const auto costs = pliant::row_costs(batch, dataset, balancer.rates());
//   const pliant::Assignment assignment = balancer.assign(costs, {.world_size = 8, .micro_batch = 2});
//   for (const pliant::RowRange rows : assignment.of(rank)) ...
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pliant/batches.hpp"
#include "pliant/config.hpp"
#include "pliant/plan.hpp"

namespace pliant {

/// A row costs per_token * sum(l) + per_square * sum(l * l) over the tokens l of its sequences. Both >= 0, not both 0;
/// only their ratio matters.
struct CostRates {
  int64_t per_token = 1;
  int64_t per_square = 0;
  bool operator==(const CostRates&) const = default;
};

/// What each row costs, in integers, so that every machine comes to the same ones: by `rates`, or where `dataset` has
/// costs, the sum of those of its sequences, of a piece by its share of the tokens. When their sum would not fit 62
/// bits all are divided by the same power of two. O(sequences). Throws kInvalidArgument for a negative rate or length,
/// for offsets that are not ascending, for rates that are both 0, and for a batch whose rows, ids and pieces do not add
/// up or that is not of `dataset`.
std::vector<int64_t> row_costs(const Batch& batch, const Dataset& dataset, CostRates rates);
/// Row i holds sequences of lengths[offsets[i]] .. lengths[offsets[i + 1] - 1] tokens.
std::vector<int64_t> row_costs(std::span<const int64_t> lengths, std::span<const uint64_t> offsets, CostRates rates);

/// How a batch is shared out.
struct Sharing {
  int64_t world_size = 1;
  int64_t micro_batch = 1;     ///< rows that a rank computes at once
  int64_t granule = 1;         ///< rows that are never split; divides micro_batch
  bool deterministic = false;  ///< rows are computed granule by granule, on each rank in the order of the batch
  /// Deterministic: the granules are dealt in turn, those of a round to one rank each, for ranks that own shards of the
  /// gradient add each round up before the next. A balancer may change who computes what within a round only.
  bool in_turn = false;
};

/// The blocks of rows that each rank computes: every row is in one.
struct Assignment {
  std::vector<RowRange> blocks;    ///< of rank 0, of rank 1, ...; each rank's in the order in which it computes them
  std::vector<size_t> offsets{0};  ///< world size + 1 entries: rank r has blocks[offsets[r] .. offsets[r + 1])

  [[nodiscard]] int64_t world_size() const { return static_cast<int64_t>(offsets.size()) - 1; }
  [[nodiscard]] std::span<const RowRange> of(int64_t rank) const {
    const size_t first = offsets[static_cast<size_t>(rank)];
    return std::span(blocks).subspan(first, offsets[static_cast<size_t>(rank) + 1] - first);
  }
  bool operator==(const Assignment&) const = default;
};

/// Consecutive rows for each rank: the micro-batches of share_of, or its granules in deterministic mode; the granules
/// r, r + world_size, ... for rank r where they are dealt in turn. These are the blocks that a balancer gives to other
/// ranks; it never cuts or joins them. Throws kInvalidArgument.
Assignment share_out(int64_t rows, const Sharing& how);

/// Rank-time, in the unit of the costs. Those of several batches may be added.
struct Waiting {
  double work = 0;             ///< computing
  double per_step = 0;         ///< from the beginning to the slowest rank's end, all ranks: they wait once a step
  double per_micro_batch = 0;  ///< the same when they also wait for each other at every micro-batch

  Waiting& operator+=(const Waiting& other);
  /// Share of the rank-time that is lost, 0 to 1.
  [[nodiscard]] double lost_per_step() const;
  [[nodiscard]] double lost_per_micro_batch() const;
};

/// How long ranks wait when rows cost `row_costs`. O(rows). A rank that has no block left waits, too. Throws
/// kInvalidArgument for a block that has rows beyond `row_costs`.
Waiting waiting(std::span<const int64_t> row_costs, const Assignment& assignment);

/// A balancer plugin with its options, ready to be asked. Cheap to copy. Calls from several threads need a lock.
class Balancer {
 public:
  /// `config` was opened with the need "balancer". Throws what the plugin has against its options.
  explicit Balancer(const Config& config);

  /// Shares rows of `row_costs` out. A function of its arguments and the config only, on every machine. Throws
  /// kInvalidArgument for a negative cost or a world size below 1; kPlugin, naming the plugin, when it breaks its
  /// contract: a block without rank, or a rank that there is not. Where granules are dealt in turn: kInvalidArgument,
  /// kInput, for a balancer that gives a rank two granules of one round.
  [[nodiscard]] Assignment assign(std::span<const int64_t> row_costs, const Sharing& how) const;
  /// waiting() of what assign() gives.
  [[nodiscard]] Waiting predict(std::span<const int64_t> row_costs, const Sharing& how) const;

  /// What `use` says: "lpt".
  [[nodiscard]] const std::string& name() const;
  /// The rates that the config gives; a job may come to others ([balancer] fit).
  [[nodiscard]] CostRates rates() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace pliant
