// Messages from device to device: the sender's pieces lie in its stage until the receiver's device has read them.
#pragma once

#include <vector>

#include "collectives/comm_state.hpp"

namespace pliant::detail::between_devices {

/// All at once, behind what is enqueued on `on`. Returns when every message is sent and taken, or received; throws when
/// one cannot be any more: the communicator has failed then. shared.peers() and shared.board() are there.
void exchange(GenericCollectives::Shared& shared, const std::vector<GenericCollectives::Comm::Message>& messages,
              pliant_stream* on);

}  // namespace pliant::detail::between_devices
