// Which transport the id of a communicator asks for.
#pragma once

#include <cstdint>
#include <memory>

#include "common/exchange/transport.hpp"
#include "common/gloo/network.hpp"
#include "pliant/abi/collectives.h"

namespace pliant::accelerator {

/// Throws what NetworkId::read throws, and PLIANT_INVALID_ARGUMENT when the id is of another transport than `network`.
std::unique_ptr<Transport> transport_of(const pliant_comm_id& id, int32_t world_size, const NetworkSettings& network);

}  // namespace pliant::accelerator
