// Balancer `contiguous`: each rank computes a run of consecutive rows.
#include "../common/dealing.hpp"
#include "pliant/sdk/balancer.hpp"

namespace {

namespace sdk = pliant::sdk;

struct Contiguous {
  [[nodiscard]] sdk::Balance balance(const sdk::BalanceRequest& request) const {
    return {pliant::balancer::deal_runs(request.costs.size(), request.world_size), false};
  }
};

}  // namespace

PLIANT_BALANCER(Contiguous, "contiguous", "0.1.0", "Consecutive rows for each rank, regardless of their cost")
