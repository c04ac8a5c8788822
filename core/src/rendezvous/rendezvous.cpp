// Calls a rendezvous plugin and checks its answers.
#include "rendezvous/rendezvous.hpp"

#include <utility>

#include "config/instances.hpp"
#include "pliant/abi/rendezvous.h"
#include "pliant/sdk/calls.hpp"
#include "pliant/sdk/rendezvous_rules.hpp"

namespace pliant {
namespace {

Error error_of(const plugin::Instance& instance, int32_t status, const pliant_error& error) {
  Error made = plugin::to_error(instance.plugin(), status, error);
  const bool left = made.status() == Status::kAborted || made.status() == Status::kDeadlineExceeded;
  return left ? made.with_origin(Origin::kRun) : made;
}

}  // namespace

Result<Rendezvous> Rendezvous::open(const Config& config) {
  Result<plugin::Instance> instance = config::instantiate(config, "rendezvous");
  if (!instance) return failed(std::move(instance));
  return Rendezvous(std::move(*instance));
}

Result<Generation> Rendezvous::join(std::string_view run_id, int32_t local_workers) {
  const pliant_join_request request{sizeof(pliant_join_request), local_workers, {run_id.data(), run_id.size()}};
  pliant_generation made{};
  made.struct_size = sizeof(made);
  pliant_error error;
  const auto& slots = instance_.table<pliant_rendezvous>();
  const int32_t status = sdk::call("join", instance_.self(), error, slots.join, &request, &made);
  if (status != PLIANT_OK) return tl::unexpected(error_of(instance_, status, error));
  if (const std::string fault = sdk::generation_fault(made, last_, local_workers); !fault.empty()) {
    return failed(Status::kInternal,
                  "rendezvous '" + std::string(instance_.plugin().record().name) + "' violates its contract: " + fault,
                  Origin::kPlugin);
  }
  last_ = made.generation;
  return Generation{made.generation, made.group_rank,  made.node_count, made.first_rank,
                    made.world_size, made.master_addr, made.master_port};
}

Result<bool> Rendezvous::watch(int32_t timeout_ms) {
  int32_t changed = 0;
  pliant_error error;
  const auto& slots = instance_.table<pliant_rendezvous>();
  const int32_t status = sdk::call("watch", instance_.self(), error, slots.watch, timeout_ms, &changed);
  if (status != PLIANT_OK) return tl::unexpected(error_of(instance_, status, error));
  return changed != 0;
}

void Rendezvous::leave() noexcept {
  pliant_error error;
  static_cast<void>(sdk::fenced(error, "leave", [this] {
    instance_.table<pliant_rendezvous>().leave(instance_.self());
    return int32_t{PLIANT_OK};
  }));
}

}  // namespace pliant
