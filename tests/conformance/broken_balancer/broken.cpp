// The balancer `broken`: deals blocks in turn, with the fault that its option names. TEST ONLY.
#include <atomic>
#include <cstring>
#include <string>

#include "pliant/sdk/balancer.hpp"

namespace {

namespace sdk = pliant::sdk;

std::atomic<int64_t> instances = 0;  // made so far

struct Broken {
  std::string fault = "none";

  static void options(sdk::Options<Broken>& table) {
    table.add("fault", &Broken::fault, "What is wrong: none, or a fault's name.");
  }
  void start(const sdk::Host& /*host*/) { number = instances++; }
  [[nodiscard]] bool is(const char* name) const { return fault == name; }
  /// Others are answered well, whatever the fault: the kit asks for them to see how instances get on.
  [[nodiscard]] static bool is_judged(const sdk::BalanceRequest& request) {
    return request.costs.size() > 4 && request.costs.size() != 37 && request.costs.size() != 36 &&
           request.costs.size() != 20;
  }

  [[nodiscard]] sdk::Balance balance(const sdk::BalanceRequest& request) const {
    const bool faulty = is_judged(request);
    if (is("few-refused") && faulty && request.world_size > 7) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE, "more than 7 ranks");
    }
    if (is("without-words") && faulty) throw sdk::Failure(PLIANT_OUT_OF_RANGE, "");
    sdk::Balance made;
    for (size_t i = 0; i < request.costs.size(); ++i) {
      made.ranks.push_back(static_cast<int32_t>(static_cast<int64_t>(i) % request.world_size));
    }
    if (!faulty) return made;
    if (is("rank-missing")) made.ranks[2] = -1;
    if (is("rank-unknown")) made.ranks[2] = static_cast<int32_t>(request.world_size);
    if (is("remembers")) made.costliest_first = ++asked > 200;
    if (is("of-an-instance")) made.costliest_first = number % 2 == 1;
    return made;
  }

  int64_t number = 0;
  mutable int64_t asked = 0;
};

using Adapter = sdk::detail::BalancerAdapter<Broken>;

/// What the SDK's slot keeps an author from.
int32_t balance(void* self, const pliant_balance_request* request, pliant_balance* answer, pliant_error* error) {
  const Broken& broken = static_cast<Adapter::Instance*>(self)->plugin;
  const auto& slots = *static_cast<const pliant_balancer*>(Adapter::vtable());
  const int32_t status = slots.balance(self, request, answer, error);
  const sdk::BalanceRequest asked{request->world_size, {request->costs, request->block_count}};
  if (status != PLIANT_OK || !Broken::is_judged(asked)) return status;
  if (broken.is("flag-unknown")) answer->flags |= 4;
  if (broken.is("ranks-past")) answer->ranks[request->block_count] = 0;
  if (broken.is("answer-past")) std::memset(answer + 1, 0, sizeof(int64_t));
  return status;
}

}  // namespace

extern "C" PLIANT_PLUGIN_EXPORT const pliant_plugin* pliant_plugin_entry_v1(void) {
  static const pliant_balancer kTable{sizeof(pliant_balancer), 0, &balance};
  return sdk::detail::record<Broken, Adapter::Instance>(PLIANT_KIND_BALANCER, &kTable, "broken", "0.0.1",
                                                        "Broken on purpose, to test the kit");
}
