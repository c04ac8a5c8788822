// Faults of communicators that shrink and grow.
#include <algorithm>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// comm_shrink turns the order of the ranks around.
struct ShrinkBackwards : Honest {
  ShrinkBackwards() : Honest({.comm_shrink = true}) {}
  std::unique_ptr<Comm> shrink(Comm& old, std::span<const int32_t> without, const pliant_comm_id& id) override {
    const auto gone_before =
        std::count_if(without.begin(), without.end(), [&](int32_t gone) { return gone < old.rank(); });
    const int32_t left = old.world_size() - static_cast<int32_t>(without.size());
    return make_comm(0, id, left - 1 - (old.rank() - static_cast<int32_t>(gone_before)), left);
  }
};

/// comm_grow gives the old ranks other numbers.
struct GrowRenumbers : Honest {
  GrowRenumbers() : Honest({.comm_grow = true}) {}
  std::unique_ptr<Comm> grow(int32_t device, Comm*, const pliant_comm_id& id, int32_t rank,
                             int32_t world_size) override {
    return make_comm(device, id, (rank + 1) % world_size, world_size);
  }
};

}  // namespace

std::vector<Fault> renewal_faults() {
  return {{"shrink-backwards", {}, make<ShrinkBackwards>}, {"grow-renumbers", {}, make<GrowRenumbers>}};
}

}  // namespace pliant::broken
