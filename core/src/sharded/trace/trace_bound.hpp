// least_gathered(): the fewest bytes that any coordinator could have gathered for the visits of a trace.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sharded/trace/trace_file.hpp"

namespace pliant::sharded {

/// Bytes, without the rounding of an arena; as it counts what TracedTransfer::bytes counts.
struct LeastGathered {
  uint64_t with_room = 0;  ///< where all that was gathered could stay until the step ends
  uint64_t at_budget = 0;  ///< within the budget; with_room where there is none
};

struct ArenaTypes {
  uint64_t budget = 0;  ///< bytes, 0: none
  DType whole = DType::kF32;
  DType reduce = DType::kF32;
};

/// By call, what must be gathered for it; the sum over the calls between two ends of steps is the bound, and no less is
/// gathered there by anybody. Nothing is whole after the end of a step, so each parameter that is used until the next
/// one is gathered at least once. Within a budget a parameter that is not in use may have gone: what is used latest
/// goes first, in parts where that suffices (farthest next use, which is the optimum where parameters may be whole in
/// parts, and so a bound where they may not, and the optimum itself where all are of one size that the budget is a
/// multiple of). What entered modules use, their gradients from the first enter in backward until they are complete,
/// and what modules use unannounced stay. What is fetched by hand is not counted. O(uses * log(parameters) + passes *
/// parameters), where a use is a parameter of an enter.
std::vector<LeastGathered> least_gathered(const ModelTables& model, std::span<const TracedCall> calls,
                                          const ArenaTypes& types);

}  // namespace pliant::sharded
