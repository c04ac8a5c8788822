// BROKEN: who destroys a communicator that not all have joined does not tell those who come.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct LeaveUntold : Honest<LeaveUntold> {
  static const pliant_collectives& honest() { return *pliant::sdk::collectives_table<LeaveUntold>(); }
  static void destroy(void* self, pliant_comm* comm) {
    if (honest().comm_status(self, comm, 0, nullptr) == PLIANT_DEADLINE_EXCEEDED) return;  // it stays for ever
    honest().comm_destroy(self, comm);
  }
  const void* extension(const char* id) const {
    static const pliant_collectives kSlots = [] {
      pliant_collectives made = honest();
      made.comm_destroy = &LeaveUntold::destroy;
      return made;
    }();
    return std::strcmp(id, PLIANT_COLLECTIVES) == 0 ? &kSlots : nullptr;
  }
};

}  // namespace

PLIANT_BROKEN(LeaveUntold, "leave-untold")
