// BROKEN: comm_shrink turns the order of the ranks around.
#include <algorithm>
#include <span>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct ShrinkBackwards : Honest<ShrinkBackwards> {
  std::unique_ptr<Comm> shrink(Comm& old, std::span<const int32_t> without, const pliant_comm_id& id) {
    const auto gone_before =
        std::count_if(without.begin(), without.end(), [&](int32_t gone) { return gone < old.rank(); });
    const int32_t left = old.world_size() - static_cast<int32_t>(without.size());
    return make_comm(0, id, left - 1 - (old.rank() - static_cast<int32_t>(gone_before)), left);
  }
};

}  // namespace

PLIANT_BROKEN(ShrinkBackwards, "shrink-backwards")
