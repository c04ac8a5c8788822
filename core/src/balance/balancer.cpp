// The balancer plugin as core asks it: blocks in, checked ranks out.
#include "pliant/balancer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "balance/costs.hpp"
#include "base/result.hpp"
#include "config/instances.hpp"
#include "pliant/abi/balancer.h"
#include "pliant/sdk/balancer_rules.hpp"
#include "pliant/sdk/calls.hpp"
#include "plugin/plugin.hpp"

namespace pliant {

struct Balancer::State {
  plugin::Instance instance;
  std::string name;
  CostRates rates;

  [[nodiscard]] Error broke(const std::string& how) const {
    return {Status::kInternal, fmt::format("balancer '{}' {}", name, how), Origin::kPlugin};
  }
};

namespace {

constexpr const char* kContiguous = "contiguous";

void check_sharing(const Sharing& how) {
  if (how.world_size >= 1 && how.world_size <= std::numeric_limits<int32_t>::max()) return;
  throw Error(Status::kInvalidArgument, fmt::format("cannot assign rows to {} ranks; allowed: 1 to {}", how.world_size,
                                                    std::numeric_limits<int32_t>::max()));
}

/// Costs of blocks whose sum fits 64 bits.
std::vector<int64_t> block_costs(std::span<const int64_t> row_costs, const std::vector<RowRange>& blocks) {
  std::vector<balance::Wide> costs(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (int64_t row = blocks[i].first; row < blocks[i].first + blocks[i].count; ++row) {
      const int64_t cost = row_costs[static_cast<size_t>(row)];
      if (cost < 0) {
        throw Error(Status::kInvalidArgument, fmt::format("row {} costs {}; costs are 0 or more", row, cost));
      }
      costs[i] += static_cast<uint64_t>(cost);
    }
  }
  return balance::fitting(costs);
}

/// `blocks` by rank; in their order, or the costliest first.
Assignment sorted_by_rank(const std::vector<RowRange>& blocks, std::span<const int64_t> costs,
                          std::span<const int32_t> ranks, int64_t world_size, bool costliest_first) {
  Assignment made;
  made.offsets.assign(static_cast<size_t>(world_size) + 1, 0);
  for (const int32_t rank : ranks) ++made.offsets[static_cast<size_t>(rank) + 1];
  std::partial_sum(made.offsets.begin(), made.offsets.end(), made.offsets.begin());
  std::vector<size_t> order(blocks.size());
  std::vector<size_t> next(made.offsets.begin(), made.offsets.end() - 1);
  for (size_t i = 0; i < blocks.size(); ++i) order[next[static_cast<size_t>(ranks[i])]++] = i;
  if (costliest_first) {
    for (size_t rank = 0; rank + 1 < made.offsets.size(); ++rank) {
      std::sort(order.begin() + static_cast<std::ptrdiff_t>(made.offsets[rank]),
                order.begin() + static_cast<std::ptrdiff_t>(made.offsets[rank + 1]),
                [costs](size_t a, size_t b) { return costs[a] != costs[b] ? costs[a] > costs[b] : a < b; });
    }
  }
  made.blocks.resize(blocks.size());
  std::transform(order.begin(), order.end(), made.blocks.begin(), [&blocks](size_t i) { return blocks[i]; });
  return made;
}

bool is_in_turn(const Sharing& how) {
  return how.deterministic && how.in_turn;
}

/// Granule g to rank g modulo the ranks.
Assignment dealt_in_turn(int64_t rows, const Sharing& how) {
  const std::vector<RowRange> granules = micro_batches({0, rows}, how.granule);
  Assignment made;
  for (size_t rank = 0; rank < static_cast<size_t>(how.world_size); ++rank) {
    for (size_t g = rank; g < granules.size(); g += static_cast<size_t>(how.world_size)) {
      made.blocks.push_back(granules[g]);
    }
    made.offsets.push_back(made.blocks.size());
  }
  return made;
}

/// The first granule of a round, `world_size` granules, in which a rank has two; nullopt when there is none.
std::optional<size_t> first_round_broken(std::span<const int32_t> ranks, int64_t world_size) {
  std::vector<size_t> last_round(static_cast<size_t>(world_size));
  for (size_t g = 0; g < ranks.size(); ++g) {
    const size_t round = g / static_cast<size_t>(world_size) + 1;
    size_t& last = last_round[static_cast<size_t>(ranks[g])];
    if (last == round) return g;
    last = round;
  }
  return std::nullopt;
}

}  // namespace

Assignment share_out(int64_t rows, const Sharing& how) {
  check_sharing(how);
  if (is_in_turn(how)) return dealt_in_turn(rows, how);
  Assignment made;
  for (int64_t rank = 0; rank < how.world_size; ++rank) {
    const RowRange share = share_of(rows, how.granule, how.world_size, rank);
    const auto own = micro_batches(share, how.deterministic ? how.granule : how.micro_batch);
    made.blocks.insert(made.blocks.end(), own.begin(), own.end());
    made.offsets.push_back(made.blocks.size());
  }
  return made;
}

Balancer::Balancer(const Config& config) {
  plugin::Instance instance = or_throw(config::instantiate(config, "balancer"));
  const CostRates rates{config.balancer().cost_per_token, config.balancer().cost_per_square};
  balance::check_rates(rates);
  state_ = std::make_shared<const State>(State{std::move(instance), config.use("balancer"), rates});
}

Assignment Balancer::assign(std::span<const int64_t> row_costs, const Sharing& how) const {
  const auto rows = static_cast<int64_t>(row_costs.size());
  // Runs of rows are what this one stands for; where granules are dealt in turn, the turn is.
  if (is_in_turn(how) && state_->name == kContiguous) return share_out(rows, how);
  Sharing in_order = how;
  in_order.in_turn = false;
  const std::vector<RowRange> blocks = share_out(rows, in_order).blocks;
  const std::vector<int64_t> costs = block_costs(row_costs, blocks);
  std::vector<int32_t> ranks(blocks.size(), -1);
  pliant_balance_request request{};
  request.struct_size = sizeof(request);
  request.world_size = how.world_size;
  request.block_count = costs.size();
  request.costs = costs.data();
  pliant_balance answer{};
  answer.struct_size = sizeof(answer);
  answer.ranks = ranks.data();
  pliant_error error;
  const auto& slots = state_->instance.table<pliant_balancer>();
  const int32_t status = sdk::call("balance", state_->instance.self(), error, slots.balance, &request, &answer);
  if (status != PLIANT_OK) throw plugin::to_error(state_->instance.plugin(), status, error);
  std::string fault = sdk::ranks_fault(ranks, how.world_size);
  if (fault.empty()) fault = sdk::balance_flags_fault(answer.flags);
  if (!fault.empty()) throw state_->broke(fault);
  if (const auto broken = is_in_turn(how) ? first_round_broken(ranks, how.world_size) : std::nullopt; broken) {
    throw Error(
        Status::kInvalidArgument,
        fmt::format("[balancer] use = \"{}\" gives rank {} two of the {} granules from {} on; with [coordinator] "
                    "and [run] deterministic = true each rank computes one granule of such a round: use = "
                    "\"{}\", or deterministic = false",
                    state_->name, ranks[*broken], how.world_size,
                    *broken / static_cast<size_t>(how.world_size) * static_cast<size_t>(how.world_size), kContiguous),
        Origin::kInput);
  }
  const bool costliest_first = answer.flags == uint32_t{PLIANT_BALANCE_COSTLIEST_FIRST} && !how.deterministic;
  return sorted_by_rank(blocks, costs, ranks, how.world_size, costliest_first);
}

Waiting Balancer::predict(std::span<const int64_t> row_costs, const Sharing& how) const {
  return waiting(row_costs, assign(row_costs, how));
}

const std::string& Balancer::name() const {
  return state_->name;
}

CostRates Balancer::rates() const {
  return state_->rates;
}

}  // namespace pliant
