// Write a balancer as a class with `Balance balance(const BalanceRequest&) const`, then PLIANT_BALANCER.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pliant/abi/balancer.h"
#include "pliant/sdk/plugin.hpp"

namespace pliant::sdk {

struct BalanceRequest {
  int64_t world_size = 1;          ///< ranks, >= 1; there may be more of them than blocks
  std::span<const int64_t> costs;  ///< of each block, >= 0; their sum fits int64. Valid during the call
};

struct Balance {
  std::vector<int32_t> ranks;    ///< of each block, 0 .. world_size - 1
  bool costliest_first = false;  ///< each rank computes its costliest block first; false: in the order of the batch
};

namespace detail {

template <class T>
struct BalancerAdapter {
  using Instance = Plain<T>;

  static int32_t balance(void* self, const pliant_balance_request* request, pliant_balance* answer,
                         pliant_error* error) noexcept {
    return guarded(error, [&] {
      const pliant_balance_request known = taken(request, &pliant_balance_request::costs, "pliant_balance_request");
      pliant_balance filled = taken<pliant_balance>(answer, &pliant_balance::ranks, "pliant_balance");
      BalanceRequest asked;
      asked.world_size = known.world_size;
      asked.costs = std::span(known.costs, static_cast<size_t>(known.block_count));
      const Balance made = static_cast<const Instance*>(self)->plugin.balance(asked);
      if (made.ranks.size() != asked.costs.size()) {
        throw Failure(PLIANT_INTERNAL, "gave ranks to " + std::to_string(made.ranks.size()) + " blocks instead of " +
                                           std::to_string(asked.costs.size()));
      }
      std::copy(made.ranks.begin(), made.ranks.end(), filled.ranks);
      filled.flags = made.costliest_first ? uint32_t{PLIANT_BALANCE_COSTLIEST_FIRST} : 0;
      fill(answer, filled);
    });
  }
  static const void* vtable() noexcept {
    static const pliant_balancer kTable{sizeof(pliant_balancer), 0, &balance};
    return &kTable;
  }
};

}  // namespace detail
}  // namespace pliant::sdk

#define PLIANT_BALANCER(Type, name, version, summary) \
  PLIANT_DETAIL_EXPORT(Type, BalancerAdapter, PLIANT_KIND_BALANCER, name, version, summary)
