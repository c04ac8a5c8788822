// A balancer that breaks its contract: its answer depends on the process that asks.
#include <cstdlib>

#include "pliant/sdk/balancer.hpp"

namespace {

struct Moody {
  [[nodiscard]] static pliant::sdk::Balance balance(const pliant::sdk::BalanceRequest& request) {
    const char* process = std::getenv("RANK");  // the agent has none
    const int64_t shift = process == nullptr ? 0 : std::atoi(process);
    pliant::sdk::Balance made;
    for (size_t block = 0; block < request.costs.size(); ++block) {
      made.ranks.push_back(static_cast<int32_t>((static_cast<int64_t>(block) + shift) % request.world_size));
    }
    return made;
  }
};

}  // namespace

PLIANT_BALANCER(Moody, "moody", "1.0.0", "Answers differently in every process")
