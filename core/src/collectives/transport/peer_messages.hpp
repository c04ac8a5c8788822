// Messages from device to device: the sender's pieces lie in its stage until the receiver's device has read them.
#pragma once

#include <vector>

#include "collectives/peers/mailbox.hpp"
#include "collectives/peers/peer_memory.hpp"
#include "collectives/peers/peer_watch.hpp"
#include "collectives/transport/message.hpp"
#include "collectives/transport/steps.hpp"

namespace pliant::collectives {

/// What messages go through.
struct Lanes {
  Steps& steps;
  Place place;
  PeerMemory& memory;
  Mailbox& mailbox;
  PeerWatch& watch;
};

/// All at once, behind what is enqueued on `on`. Returns when every message is sent and taken, or received; throws when
/// one cannot be any more: the communicator has failed then.
void exchange_by_lanes(const Lanes& lanes, const std::vector<Message>& messages, pliant_stream* on);

}  // namespace pliant::collectives
