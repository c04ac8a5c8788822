// Balancer `karmarkar_karp`: largest differencing, the most even work of all.
#include "../kernel/differencing.hpp"
#include "pliant/sdk/balancer.hpp"

namespace {

namespace sdk = pliant::sdk;

struct KarmarkarKarp {
  bool equal_counts = true;

  static void options(sdk::Options<KarmarkarKarp>& o) {
    o.add("equal_counts", &KarmarkarKarp::equal_counts,
          "Give every rank as many blocks as sharing them out evenly would, up to one; false = only the work counts.");
  }

  [[nodiscard]] sdk::Balance balance(const sdk::BalanceRequest& request) const {
    return {pliant::balancer::largest_differencing(request.costs, request.world_size, equal_counts), true};
  }
};

}  // namespace

PLIANT_BALANCER(KarmarkarKarp, "karmarkar_karp", "0.1.0", "Largest differencing: the most even work of all")
