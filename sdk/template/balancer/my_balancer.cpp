// my-balancer: each block, in the order of the batch, to the rank that has the least work so far.
#include "pliant/sdk/balancer.hpp"

struct MyBalancer {
  bool costliest_first = true;

  static void options(pliant::sdk::Options<MyBalancer>& table) {
    table.add("costliest_first", &MyBalancer::costliest_first, "Compute the costliest block of a rank first.");
  }

  pliant::sdk::Balance balance(const pliant::sdk::BalanceRequest& request) const {
    pliant::sdk::Balance made;
    made.costliest_first = costliest_first;
    std::vector<int64_t> work(static_cast<size_t>(request.world_size));
    for (const int64_t cost : request.costs) {
      const auto idlest = std::min_element(work.begin(), work.end());  // the first of several: the same everywhere
      *idlest += cost;
      made.ranks.push_back(static_cast<int32_t>(idlest - work.begin()));
    }
    return made;
  }
};

PLIANT_BALANCER(MyBalancer, "my-balancer", "0.1.0", "each block to the rank that has the least work so far")
