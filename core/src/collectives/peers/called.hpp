// Called: an accelerator as the generic collectives call it. What a slot reports is thrown as sdk::Failure.
#pragma once

#include <cstdint>

#include "pliant/abi/ipc.h"
#include "pliant/sdk/calls.hpp"
#include "plugin/plugin.hpp"

namespace pliant::collectives {

/// What a rank is in a communicator, and on which device.
struct Place {
  int32_t device_index = 0;
  int32_t rank = 0;
  int32_t world_size = 0;
};

struct Called {
  /// Throws Error when an extension breaks its contract.
  explicit Called(const plugin::Instance& of) : instance(of), slots(of.table<pliant_accelerator>(), of.self()) {
    const auto* const table = or_throw(of.extension<pliant_collectives>(PLIANT_COLLECTIVES));
    if (table != nullptr) collectives = {*table, of.self()};
    const auto* const passes = or_throw(of.extension<pliant_ipc>(PLIANT_IPC));
    if (passes != nullptr) ipc = {*passes, of.self()};
  }

  const plugin::Instance& instance;  ///< lives longer than this
  sdk::Calls<pliant_accelerator> slots;
  sdk::Calls<pliant_collectives> collectives;  ///< empty where it has none
  sdk::Calls<pliant_ipc> ipc;                  ///< likewise
};

}  // namespace pliant::collectives
