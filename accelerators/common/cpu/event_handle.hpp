// EventLabel: what the handle of a shared event begins with, and handles of events that need no more.
#pragma once

#include <cstdint>
#include <memory>

#include "common/cpu/shared_event.hpp"
#include "pliant/abi/ipc.h"

namespace pliant::accelerator {

struct EventLabel {
  uint64_t magic;
  uint64_t process;  ///< that made it, ProcessId::packed
  uint64_t pid_space;
  uint64_t nonce[2];

  static EventLabel of(const SharedEvent& event, uint64_t magic);
  /// Throws PLIANT_INVALID_ARGUMENT for what is no such handle, PLIANT_FAILED_PRECONDITION when the event is of this
  /// process or of one that is gone.
  void require_foreign(uint64_t wanted_magic) const;
  /// The event, by its descriptor; its maker is watched. Throws as SharedEvent::open().
  [[nodiscard]] std::shared_ptr<SharedEvent> open(int descriptor, ProcessWatch& watch) const;
};

/// A new descriptor for the same file. Throws PLIANT_RESOURCE_EXHAUSTED.
int duplicate_for_handle(int descriptor);

/// The descriptor is a new one, the caller's. PLIANT_INVALID_ARGUMENT for an event of another process, or for NULL.
pliant_ipc_handle export_event(const SharedEvent* event);
/// The descriptor stays the caller's. Throws as require_foreign() and SharedEvent::open().
std::shared_ptr<SharedEvent> import_event(const pliant_ipc_handle& handle, ProcessWatch& watch);

/// Throws PLIANT_INVALID_ARGUMENT unless this process made the event to be exported.
void require_exported(const SharedEvent* event);

}  // namespace pliant::accelerator
