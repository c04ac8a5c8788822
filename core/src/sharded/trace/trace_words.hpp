// Words of a trace file, for who writes it and who reads it. Each list is in the order of the values that it is of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "pliant/abi/coordinator.h"
#include "pliant/sharded.hpp"

namespace pliant::sharded {

inline constexpr std::array<std::string_view, 7> kCallWords{"begin_pass", "begin_evaluation", "enter",  "leave",
                                                            "end_pass",   "end_step",         "by_hand"};
inline constexpr std::array<std::string_view, 3> kDirectionWords{"forward", "backward", "recompute"};
constexpr std::string_view word_of(Direction direction) {
  return kDirectionWords.at(static_cast<size_t>(direction));
}
inline constexpr std::array<std::string_view, 2> kTransferWords{"gather", "reduce"};
/// From PLIANT_ACTION_GATHER on.
inline constexpr std::array<std::string_view, 8> kActionWords{"gather", "wait",  "release",    "reduce",
                                                              "load",   "store", "drop_trace", "bound_waits"};

/// Whether an action is done with one parameter, which it names.
constexpr bool moves_parameter(uint32_t kind) {
  return kind >= PLIANT_ACTION_GATHER && kind <= PLIANT_ACTION_STORE;
}

/// That an action has where the file says none.
constexpr uint64_t usual_place_of(uint32_t kind) {
  return kind == PLIANT_ACTION_GATHER ? PLIANT_ANY_PLACE : 0;
}

/// Threads of a rank's process, as viewers show them; the numbers are unlike in every process.
inline constexpr uint64_t kProgramThread = 1;
inline constexpr uint64_t kWaitThread = 2;
inline constexpr uint64_t kExchangeThread = 3;
inline constexpr uint64_t kThreadsOfProcess = 10;

}  // namespace pliant::sharded
