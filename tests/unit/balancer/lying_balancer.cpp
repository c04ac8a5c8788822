// A balancer that answers wrongly in the way that its option says.
#include <stdexcept>

#include "pliant/sdk/balancer.hpp"

namespace {

struct Lying {
  std::string how = "few";

  static void options(pliant::sdk::Options<Lying>& table) {
    table.add("how", &Lying::how, "What is wrong.")
        .choices({"few", "many", "too_high", "negative", "silent", "throws"});
  }

  [[nodiscard]] pliant::sdk::Balance balance(const pliant::sdk::BalanceRequest& request) const {
    if (how == "throws") throw std::runtime_error("the lying balancer threw");
    pliant::sdk::Balance made;
    made.ranks.assign(request.costs.size(), 0);
    if (how == "few") made.ranks.pop_back();
    if (how == "many") made.ranks.push_back(0);
    if (how == "too_high") made.ranks.back() = static_cast<int32_t>(request.world_size);
    if (how == "negative") made.ranks.front() = -7;
    if (how == "silent") made.ranks.back() = -1;
    return made;
  }
};

}  // namespace

PLIANT_BALANCER(Lying, "lying", "1.0.0", "Answers wrongly")
