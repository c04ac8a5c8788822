// What a balancer answers, held against pliant/abi/balancer.h. For hosts, which refuse what breaks it, and for tests of
// balancers. Every function says in words what is wrong, "" for nothing.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "pliant/abi/balancer.h"

namespace pliant::sdk {

/// The ranks of all blocks; each was -1 when the call began.
[[nodiscard]] inline std::string ranks_fault(std::span<const int32_t> ranks, int64_t world_size) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] >= 0 && ranks[i] < world_size) continue;
    const std::string block = "assigned block " + std::to_string(i) + " of " + std::to_string(ranks.size());
    if (ranks[i] == -1) return block + " to no rank";
    return block + " to rank " + std::to_string(ranks[i]) + "; ranks are 0 to " + std::to_string(world_size - 1);
  }
  return {};
}

[[nodiscard]] inline std::string balance_flags_fault(uint32_t flags) {
  constexpr uint32_t kKnown = PLIANT_BALANCE_COSTLIEST_FIRST;
  if ((flags & ~kKnown) == 0) return {};
  char text[64] = {};
  std::snprintf(text, sizeof(text), "set flags %#x; known here: %#x", static_cast<unsigned>(flags),
                static_cast<unsigned>(kKnown));
  return text;
}

}  // namespace pliant::sdk
