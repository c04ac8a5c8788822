// take_group(): what core carries out in one go of a coordinator's answer.
#pragma once

#include <cstddef>
#include <span>

#include "pliant/abi/coordinator.h"

namespace pliant::sharded {

/// Takes from the front of `actions`, which is not empty, a whole group of gathers or of reductions, or another action.
constexpr std::span<const pliant_action> take_group(std::span<const pliant_action>& actions) {
  const pliant_action& first = actions.front();
  const bool is_of_group = first.kind == PLIANT_ACTION_GATHER || first.kind == PLIANT_ACTION_REDUCE;
  size_t count = 1;
  while (is_of_group && count < actions.size() && actions[count].kind == first.kind &&
         actions[count].group == first.group) {
    ++count;
  }
  const std::span<const pliant_action> group = actions.first(count);
  actions = actions.subspan(count);
  return group;
}

}  // namespace pliant::sharded
