// What is decided on paper, with room for its actions.
#pragma once

#include <span>
#include <vector>

#include "layout.hpp"

namespace pliant::coordinator::planned {

/// Does `decided` with room for the answer to one call, and gives what was written to `hear`.
template <class Decided, class Hear>
void answered(std::vector<pliant_action>& room, const Decided& decided, const Hear& hear) {
  pliant_action_list list{sizeof(pliant_action_list), 0, room.size(), 0, room.data()};
  {
    sdk::Actions actions(list);
    decided(actions);
  }
  hear(std::span<const pliant_action>(room.data(), list.count));
}

/// As much as a host gives.
inline std::vector<pliant_action> room_for(const Layout& layout) {
  return std::vector<pliant_action>(8 * layout.parameters() + 64);
}

}  // namespace pliant::coordinator::planned
