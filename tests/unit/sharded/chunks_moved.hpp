// How many chunks a plan of moves moves.
#pragma once

#include <cstdint>
#include <numeric>

#include "sharded/shards/moves.hpp"

namespace pliant_test {

inline int64_t chunks_moved(const pliant::sharded::MovePlan& plan) {
  return std::accumulate(plan.moves.begin(), plan.moves.end(), int64_t{0},
                         [](int64_t sum, const pliant::sharded::Move& move) { return sum + move.chunks.count; });
}

}  // namespace pliant_test
