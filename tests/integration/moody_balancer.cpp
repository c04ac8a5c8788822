// A balancer that breaks its contract: its answer depends on the process that asks. TEST_MOOD says on what of it:
// "rank", "restart", as if the file had been replaced before the first one, "later", likewise, by one that answers
// otherwise only about fewer than four blocks for each rank, or, where it is not set, whether it is a worker. "none":
// on nothing.
#include <cstdlib>
#include <string>

#include "pliant/sdk/balancer.hpp"

namespace {

/// 0 where the variable is not set.
int64_t number(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

int64_t mood(const pliant::sdk::BalanceRequest& request) {
  const char* const given = std::getenv("TEST_MOOD");
  const std::string what = given == nullptr ? "worker" : given;
  if (what == "rank") return number("RANK");
  if (what == "restart") return number("TORCHELASTIC_RESTART_COUNT") == 1 ? 1 : 0;
  const bool is_small = static_cast<int64_t>(request.costs.size()) < 4 * request.world_size;
  if (what == "later") return number("TORCHELASTIC_RESTART_COUNT") == 1 && is_small ? 1 : 0;
  if (what == "none") return 0;
  return std::getenv("RANK") == nullptr ? 0 : 1;  // the agent has none
}

struct Moody {
  [[nodiscard]] static pliant::sdk::Balance balance(const pliant::sdk::BalanceRequest& request) {
    const int64_t shift = mood(request);
    pliant::sdk::Balance made;
    for (size_t block = 0; block < request.costs.size(); ++block) {
      made.ranks.push_back(static_cast<int32_t>((static_cast<int64_t>(block) + shift) % request.world_size));
    }
    return made;
  }
};

}  // namespace

PLIANT_BALANCER(Moody, "moody", "1.0.0", "Answers differently in every process")
