// What the handles of the embedding API share: the instance of an accelerator, its extensions, its memory in stream
// order.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/stream_memory.hpp"
#include "collectives/collectives_of.hpp"
#include "pliant/abi/optimizer.h"
#include "pliant/accelerator.hpp"
#include "pliant/sdk/failure.hpp"
#include "plugin/plugin.hpp"

namespace pliant {

struct Accelerator::State {
  plugin::Instance instance;
  detail::StreamMemory stream_memory;
  pliant::collectives::CollectivesOf collectives;
  sdk::Calls<pliant_optimizer> optimizer;  ///< empty where the plugin has none

  State(plugin::Instance made, const std::vector<plugin::SearchDir>& search)
      : instance(std::move(made)), stream_memory(instance), collectives(instance, search) {
    const auto* const own = or_throw(instance.extension<pliant_optimizer>(PLIANT_OPTIMIZER));
    if (own != nullptr) optimizer = {*own, instance.self()};
  }

  [[nodiscard]] sdk::Calls<pliant_accelerator> slots() const {
    return {instance.table<pliant_accelerator>(), instance.self()};
  }

  /// Runs body; what it throws as sdk::Failure becomes an Error of this accelerator.
  template <class Body>
  auto told(Body&& body) const {
    try {
      return body();
    } catch (const sdk::Failure& failure) {
      fail(failure);
    }
  }
  /// `state.call(&pliant_accelerator::device_count, &count)`; throws what it reports as an Error.
  template <class... Parameters, class... Arguments>
  void call(int32_t (*pliant_accelerator::*slot)(void*, Parameters...), const Arguments&... arguments) const {
    told([&] { slots().must(slot, arguments...); });
  }
  [[nodiscard]] pliant_device_properties properties(int32_t device) const {
    pliant_device_properties raw{};
    raw.struct_size = sizeof(raw);
    call(&pliant_accelerator::device_properties, device, &raw);
    raw.name[sizeof(raw.name) - 1] = '\0';
    return raw;
  }
  /// The same for a slot of the collectives, which those of an older plugin may not have.
  template <class... Parameters, class... Arguments>
  void call(int32_t (*pliant_collectives::*slot)(void*, Parameters...), const Arguments&... arguments) {
    const sdk::Calls<pliant_collectives> calls = collectives.calls();
    if (!calls.has(slot)) {
      throw Error(Status::kUnimplemented, "accelerator \"" + std::string(instance.plugin().record().name) +
                                              "\" was built for an older Pliant and has no such collective");
    }
    told([&] { calls.must(slot, arguments...); });
  }

 private:
  /// Losing a rank, memory or time is no fault of the plugin, so it has not the origin of one.
  [[noreturn]] void fail(const sdk::Failure& failure) const {
    pliant_error error = plugin::fresh_error();
    sdk::detail::set_error(&error, failure);
    Error made = plugin::to_error(instance.plugin(), failure.status(), error);
    switch (made.status()) {
      case Status::kAborted:
      case Status::kPeerLost:
      case Status::kDeadlineExceeded:
      case Status::kResourceExhausted:
        throw made.with_origin(Origin::kRun);
      default:
        throw made;
    }
  }
};

struct Event::State {
  explicit State(std::shared_ptr<Accelerator::State> of) : accelerator(std::move(of)) {}
  std::shared_ptr<Accelerator::State> accelerator;
  sdk::OwnedEvent handle;
};

struct Stream::State {
  State(std::shared_ptr<Accelerator::State> of, int32_t on) : accelerator(std::move(of)), device(on) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    pliant_stream* const ended = handle;
    if (ended == nullptr) return;
    handle.reset();
    accelerator->collectives.forget(ended);
    accelerator->stream_memory.forget(ended);
  }

  std::shared_ptr<Accelerator::State> accelerator;
  int32_t device = 0;
  sdk::OwnedStream handle;
};

}  // namespace pliant
