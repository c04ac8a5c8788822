// Places: where pieces lie in an arena when it is known beforehand when each comes and goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pliant/abi/coordinator.h"

namespace pliant::coordinator::planned {

/// Lies there from one moment on and to another.
struct Piece {
  uint64_t bytes = 0;
  size_t begin = 0;
  size_t end = 0;                     ///< it does not lie there any more
  uint64_t place = PLIANT_ANY_PLACE;  ///< given: there and nowhere else
  uint64_t wish = PLIANT_ANY_PLACE;   ///< there if it can
  bool is_first = false;              ///< before the others, as low as it can
};

/// Gives each piece without a place one below `top` where it meets no other piece, from the largest to the smallest,
/// then from the longest on, then by both; in each order what finds no place is tried once more before all others.
/// False: it has found no such places, which may be there all the same; `pieces` are as they were. O(pieces) in all,
/// with a large constant: `looked_at` rises by what it looked at.
[[nodiscard]] bool find_places(std::vector<Piece>& pieces, uint64_t top, uint64_t& looked_at);

}  // namespace pliant::coordinator::planned
