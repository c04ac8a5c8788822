// Balancer `lpt`: the costliest block that is left to the rank with the least work.
#include "../common/longest_first.hpp"
#include "pliant/sdk/balancer.hpp"

namespace {

namespace sdk = pliant::sdk;

struct Lpt {
  bool equal_counts = true;

  static void options(sdk::Options<Lpt>& o) {
    o.add("equal_counts", &Lpt::equal_counts,
          "Give all ranks the same number of blocks, up to a difference of one; false = balance only the work.");
  }

  [[nodiscard]] sdk::Balance balance(const sdk::BalanceRequest& request) const {
    return {pliant::balancer::longest_first(request.costs, request.world_size, equal_counts), true};
  }
};

}  // namespace

PLIANT_BALANCER(Lpt, "lpt", "0.1.0",
                "Longest processing time first: the costliest remaining block goes to the rank with the least work")
