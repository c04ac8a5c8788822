// BROKEN: comm_grow gives the old ranks other numbers.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct GrowRenumbers : Honest<GrowRenumbers> {
  std::unique_ptr<Comm> grow(int32_t device, Comm*, const pliant_comm_id& id, int32_t rank, int32_t world_size) {
    return make_comm(device, id, (rank + 1) % world_size, world_size);
  }
};

}  // namespace

PLIANT_BROKEN(GrowRenumbers, "grow-renumbers")
