// Two gatherings of a few bytes: on which device each rank is, then the id that rank 0 makes.
#include "accelerator/generic_own.hpp"

#include <algorithm>
#include <vector>

namespace pliant::detail {

using sdk::Failure;

namespace {

struct Offer {
  uint64_t is_there;
  uint64_t device_key;
};

struct Ticket {
  uint64_t is_made;
  pliant_comm_id id;
};

Offer offer_of(const Called& device, const pliant_collectives* table, int32_t device_index) {
  Offer made{};
  if (table == nullptr) return made;
  try {
    device(table->device_key, device_index, &made.device_key);
    made.is_there = 1;
  } catch (const Failure&) {  // then the generic ones serve
  }
  return made;
}

bool can_join(std::vector<Offer> offers) {
  std::sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) { return a.device_key < b.device_key; });
  const bool all = std::all_of(offers.begin(), offers.end(), [](const Offer& one) { return one.is_there == 1; });
  const auto same = std::adjacent_find(offers.begin(), offers.end(),
                                       [](const Offer& a, const Offer& b) { return a.device_key == b.device_key; });
  return all && same == offers.end();
}

}  // namespace

OwnComm::OwnComm(const Called& device, const pliant_collectives& table, const Place& place, const pliant_comm_id& id)
    : device_(device), table_(table) {
  device_(table_.comm_create, place.device_index, &id, place.rank, place.world_size, &comm_);
}

OwnComm::~OwnComm() {
  table_.comm_destroy(device_.instance.self(), comm_);
}

void OwnComm::abort() const {
  table_.comm_abort(device_.instance.self(), comm_);
}

void OwnComm::decline(int32_t world_size, const Gather& gather) {
  const Offer none{};
  std::vector<Offer> all(static_cast<size_t>(world_size));
  gather(&none, all.data(), sizeof(Offer));
}

std::unique_ptr<OwnComm> OwnComm::agree(const Called& device, const pliant_collectives* table, const Place& place,
                                        const Gather& gather) {
  const Offer own = offer_of(device, table, place.device_index);
  std::vector<Offer> offers(static_cast<size_t>(place.world_size));
  gather(&own, offers.data(), sizeof(Offer));
  if (!can_join(std::move(offers))) return nullptr;
  Ticket ticket{};
  if (place.rank == 0) {
    try {
      device(table->comm_id, place.world_size, &ticket.id);
      ticket.is_made = 1;
    } catch (const Failure&) {  // then the generic ones serve
    }
  }
  std::vector<Ticket> tickets(static_cast<size_t>(place.world_size));
  gather(&ticket, tickets.data(), sizeof(Ticket));
  if (tickets.front().is_made == 0) return nullptr;
  return std::unique_ptr<OwnComm>(new OwnComm(device, *table, place, tickets.front().id));
}

}  // namespace pliant::detail
