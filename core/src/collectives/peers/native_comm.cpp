// Two gatherings of a few bytes: on which device each rank is, then the id that rank 0 makes.
#include "collectives/peers/native_comm.hpp"

#include <algorithm>
#include <vector>

namespace pliant::collectives {

using sdk::Failure;

namespace {

using Origin = NativeComm::Origin;

struct DeviceOffer {
  uint32_t is_there;
  Origin origin;
  uint64_t device_key;
};

struct Ticket {
  uint64_t is_made;
  pliant_comm_id id;
};

/// What this rank can make a communicator of.
Origin origin_of(const sdk::Calls<pliant_collectives>& calls, const NativeComm::Renewal& renewal) {
  const bool has_old = renewal.old != nullptr && renewal.old->is_joined();
  switch (renewal.origin) {
    case Origin::kShrunk:
      return has_old && calls.has(&pliant_collectives::comm_shrink) ? Origin::kShrunk : Origin::kNothing;
    case Origin::kGrown:
      if (!has_old || !calls.has(&pliant_collectives::comm_grow)) return Origin::kNothing;
      renewal.old->call(&pliant_collectives::comm_status, int32_t{0});  // throws when it has failed
      return Origin::kGrown;
    case Origin::kJoining:
      return calls.has(&pliant_collectives::comm_grow) ? Origin::kJoining : Origin::kNothing;
    case Origin::kNothing:
      break;
  }
  return Origin::kNothing;
}

DeviceOffer offer_of(const sdk::Calls<pliant_collectives>& calls, int32_t device_index,
                     const NativeComm::Renewal& renewal) {
  DeviceOffer made{};
  if (!calls) return made;
  try {
    calls.must(&pliant_collectives::device_key, device_index, &made.device_key);
    made.is_there = 1;
  } catch (const Failure&) {  // then the generic ones serve
    return made;
  }
  try {
    made.origin = origin_of(calls, renewal);
  } catch (const Failure&) {  // then it is made anew
  }
  return made;
}

bool can_join(std::vector<DeviceOffer> offers) {
  std::sort(offers.begin(), offers.end(),
            [](const DeviceOffer& a, const DeviceOffer& b) { return a.device_key < b.device_key; });
  const bool all = std::all_of(offers.begin(), offers.end(), [](const DeviceOffer& one) { return one.is_there == 1; });
  const auto same = std::adjacent_find(offers.begin(), offers.end(), [](const DeviceOffer& a, const DeviceOffer& b) {
    return a.device_key == b.device_key;
  });
  return all && same == offers.end();
}

/// kNothing unless all ranks can: rank 0 was in the old one, whether it shrinks or grows.
Origin common_origin(const std::vector<DeviceOffer>& offers) {
  const Origin first = offers.front().origin;
  const bool all = std::all_of(offers.begin(), offers.end(), [&](const DeviceOffer& one) {
    return one.origin == first || (first == Origin::kGrown && one.origin == Origin::kJoining);
  });
  return all && first != Origin::kJoining ? first : Origin::kNothing;
}

}  // namespace

void NativeComm::make(const Place& place, Origin origin, const Renewal& renewal, const pliant_comm_id& id) {
  if (origin == Origin::kNothing) {
    return calls().must(&pliant_collectives::comm_create, place.device_index, &id, place.rank, place.world_size,
                        comm_.out());
  }
  if (origin == Origin::kShrunk) {
    return calls().must(&pliant_collectives::comm_shrink, renewal.old->comm_.get(), renewal.without.data(),
                        renewal.without.size(), &id, comm_.out());
  }
  pliant_comm* const old = renewal.old != nullptr ? renewal.old->comm_.get() : nullptr;
  calls().must(&pliant_collectives::comm_grow, place.device_index, old, &id, place.rank, place.world_size, comm_.out());
}

void NativeComm::abort() const {
  calls()->comm_abort(calls().self(), comm_);
}

bool NativeComm::is_done() const {
  if (!calls().has(&pliant_collectives::comm_query)) return true;
  int32_t done = 0;
  return calls().ask(&pliant_collectives::comm_query, comm_.get(), &done).ok() && done != 0;
}

bool NativeComm::is_running() const {
  return !is_done() && calls().ask(&pliant_collectives::comm_status, comm_.get(), 0).ok();
}

void NativeComm::decline(int32_t world_size, const Gather& gather) {
  const DeviceOffer none{};
  std::vector<DeviceOffer> all(static_cast<size_t>(world_size));
  gather(&none, all.data(), sizeof(DeviceOffer));
}

std::shared_ptr<NativeComm> NativeComm::agree(const sdk::Calls<pliant_collectives>& calls, const Place& place,
                                              const Renewal& renewal, const Gather& gather) {
  const DeviceOffer own = offer_of(calls, place.device_index, renewal);
  std::vector<DeviceOffer> offers(static_cast<size_t>(place.world_size));
  gather(&own, offers.data(), sizeof(DeviceOffer));
  if (!can_join(offers)) return nullptr;
  const Origin origin = common_origin(offers);
  Ticket ticket{};
  if (place.rank == 0) {
    try {
      if (origin == Origin::kGrown && calls.has(&pliant_collectives::comm_grow_id)) {
        calls.must(&pliant_collectives::comm_grow_id, renewal.old->comm_.get(), place.world_size, &ticket.id);
      } else {
        calls.must(&pliant_collectives::comm_id, place.world_size, &ticket.id);
      }
      ticket.is_made = 1;
    } catch (const Failure&) {  // then the generic ones serve
    }
  }
  std::vector<Ticket> tickets(static_cast<size_t>(place.world_size));
  gather(&ticket, tickets.data(), sizeof(Ticket));
  if (tickets.front().is_made == 0) return nullptr;
  std::shared_ptr<NativeComm> made(new NativeComm(calls));
  made->make(place, origin, renewal, tickets.front().id);
  return made;
}

}  // namespace pliant::collectives
