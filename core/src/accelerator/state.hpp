// What the handles of the embedding API share: the instance of an accelerator, its collectives, its memory in stream
// order.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/collectives_of.hpp"
#include "accelerator/stream_memory.hpp"
#include "pliant/accelerator.hpp"
#include "pliant/sdk/failure.hpp"
#include "plugin/plugin.hpp"

namespace pliant {

struct Accelerator::State {
  plugin::Instance instance;
  detail::StreamMemory stream_memory;
  detail::CollectivesOf collectives;

  State(plugin::Instance made, const std::vector<plugin::SearchDir>& search)
      : instance(std::move(made)), stream_memory(instance), collectives(instance, search) {}

  [[nodiscard]] const pliant_accelerator& table() const { return instance.table<pliant_accelerator>(); }

  /// Runs body; what it throws as sdk::Failure becomes an Error of this accelerator.
  template <class Body>
  auto told(Body&& body) const {
    try {
      return body();
    } catch (const sdk::Failure& failure) {
      pliant_error error = plugin::fresh_error();
      sdk::detail::set_error(&error, failure.status(), failure.what());
      fail(failure.status(), error);
    }
  }
  /// Calls slot(self, args..., error); throws what it reports.
  template <class... Parameters, class... Arguments>
  void call(int32_t (*slot)(void*, Parameters...), Arguments... arguments) const {
    call_on(instance.self(), slot, arguments...);
  }
  [[nodiscard]] pliant_device_properties properties(int32_t device) const {
    pliant_device_properties raw{};
    raw.struct_size = sizeof(raw);
    call(table().device_properties, device, &raw);
    raw.name[sizeof(raw.name) - 1] = '\0';
    return raw;
  }
  /// The collectives have `slot`; those of an older plugin may not.
  template <class Slot>
  [[nodiscard]] bool has(Slot pliant_collectives::*slot) {
    return collectives.table().*slot != nullptr;
  }
  /// The same for a slot of the collectives.
  template <class... Parameters, class... Arguments>
  void call(int32_t (*pliant_collectives::*slot)(void*, Parameters...), Arguments... arguments) {
    if (!has(slot)) {
      throw Error(Status::kUnimplemented, "accelerator \"" + std::string(instance.plugin().record().name) +
                                              "\" was built for an older Pliant and has no such collective");
    }
    call_on(collectives.self(), collectives.table().*slot, arguments...);
  }

 private:
  template <class... Parameters, class... Arguments>
  void call_on(void* self, int32_t (*slot)(void*, Parameters...), Arguments... arguments) const {
    pliant_error error = plugin::fresh_error();
    const int32_t status = slot(self, arguments..., &error);
    if (status != PLIANT_OK) fail(status, error);
  }
  /// Losing a rank, memory or time is no fault of the plugin, so it does not ask for the exit code of one.
  [[noreturn]] void fail(int32_t status, const pliant_error& error) const {
    Error made = plugin::to_error(instance.plugin(), status, error);
    switch (made.status()) {
      case Status::kAborted:
      case Status::kPeerLost:
      case Status::kDeadlineExceeded:
      case Status::kResourceExhausted:
        throw Error(made.status(), made.message(), ExitCode::kFailed);
      default:
        throw made;
    }
  }
};

struct Event::State {
  std::shared_ptr<Accelerator::State> accelerator;
  pliant_event* handle = nullptr;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (handle != nullptr) accelerator->table().event_destroy(accelerator->instance.self(), handle);
  }
};

struct Stream::State {
  std::shared_ptr<Accelerator::State> accelerator;
  pliant_stream* handle = nullptr;
  int32_t device = 0;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (handle == nullptr) return;
    accelerator->table().stream_destroy(accelerator->instance.self(), handle);
    accelerator->collectives.forget(handle);
    accelerator->stream_memory.forget(handle);
  }
};

}  // namespace pliant
