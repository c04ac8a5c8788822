// Balancer `round_robin`: blocks go to the ranks in turn.
#include "../common/dealing.hpp"
#include "pliant/sdk/balancer.hpp"

namespace {

namespace sdk = pliant::sdk;

struct RoundRobin {
  [[nodiscard]] sdk::Balance balance(const sdk::BalanceRequest& request) const {
    return {pliant::balancer::deal_in_turn(request.costs.size(), request.world_size), false};
  }
};

}  // namespace

PLIANT_BALANCER(RoundRobin, "round_robin", "0.1.0", "Blocks go to the ranks in turn, regardless of their cost")
