// Balancer `cost_sort`: blocks sorted by cost, so that the ranks compute blocks that are alike at the same time.
#include "../common/dealing.hpp"
#include "pliant/sdk/balancer.hpp"

namespace {

namespace sdk = pliant::sdk;

struct CostSort {
  int64_t window = 0;

  static void options(sdk::Options<CostSort>& o) {
    o.add("window", &CostSort::window,
          "Sort the blocks of this many micro-batches per rank at a time, in the order of the batch; 0 = the whole "
          "batch.")
        .range(0, 1 << 20)
        .unit("micro-batches");
  }

  [[nodiscard]] sdk::Balance balance(const sdk::BalanceRequest& request) const {
    return {pliant::balancer::deal_sorted(request.costs, request.world_size, window), true};
  }
};

}  // namespace

PLIANT_BALANCER(CostSort, "cost_sort", "0.1.0", "Blocks of similar cost for all ranks at the same time")
