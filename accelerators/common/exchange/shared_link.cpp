// Rings whoever sleeps for what has just happened.
#include "common/exchange/shared_link.hpp"

#include "common/exchange/group.hpp"
#include "common/processes/futex.hpp"

namespace pliant::accelerator {

// NOLINTNEXTLINE(performance-unnecessary-value-param): as the other transports have it
std::unique_ptr<Link> SharedTransport::make_link(Group& group, std::shared_ptr<UniqueFd>) const {
  return std::make_unique<SharedLink>(group);
}

void SharedLink::start() {
  watcher_ = std::make_unique<Watcher>(group_);
  ring_all();
}

void SharedLink::stop() {
  watcher_.reset();
}

void SharedLink::published(Stage stage, uint64_t ticks, const Parcels*) {
  for (int32_t r = 0; r < group_.world_size(); ++r) {
    if (r != group_.rank()) group_.ring_if_awaited(r, group_.rank(), stage, ticks);
  }
}

void SharedLink::posted(int32_t peer, uint32_t, uint64_t) {
  group_.ring_if_listening(peer);
}

void SharedLink::turned(int32_t peer) {
  group_.ring_if_listening(peer);
}

void SharedLink::failed(FailureCause) {
  ring_all();
}

void SharedLink::left() {
  ring_all();
}

void SharedLink::ring_all() {
  for (int32_t r = 0; r < group_.world_size(); ++r) ring(group_.segment().rank(r).doorbell);
}

}  // namespace pliant::accelerator
