// Balancer `karmarkar_karp`: largest differencing, the most even work of all.
#include <algorithm>
#include <utility>

#include "../common/differencing.hpp"
#include "../common/longest_first.hpp"
#include "pliant/sdk/balancer.hpp"

namespace {

namespace sdk = pliant::sdk;

struct KarmarkarKarp {
  bool equal_counts = true;

  static void options(sdk::Options<KarmarkarKarp>& o) {
    o.add("equal_counts", &KarmarkarKarp::equal_counts,
          "Give all ranks the same number of blocks, up to a difference of one; false = balance only the work.");
  }

  [[nodiscard]] sdk::Balance balance(const sdk::BalanceRequest& request) const {
    namespace common = pliant::balancer;
    common::Ranks differencing = common::largest_differencing(request.costs, request.world_size, equal_counts);
    if (!equal_counts) return {std::move(differencing), true};
    // Groups of one block a rank cannot make up for a block that is worth many others.
    common::Ranks longest = common::longest_first(request.costs, request.world_size, true);
    const bool better = largest(request, longest) < largest(request, differencing);
    return {better ? std::move(longest) : std::move(differencing), true};
  }

 private:
  static int64_t largest(const sdk::BalanceRequest& request, const pliant::balancer::Ranks& ranks) {
    const std::vector<int64_t> loads = pliant::balancer::loads(request.costs, ranks, request.world_size);
    return *std::max_element(loads.begin(), loads.end());
  }
};

}  // namespace

PLIANT_BALANCER(KarmarkarKarp, "karmarkar_karp", "0.1.0", "Largest differencing: the most even work of all balancers")
