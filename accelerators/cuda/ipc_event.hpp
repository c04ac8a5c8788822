// IpcEvent: an event that passes between processes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "common/cpu/shared_event.hpp"
#include "pliant/abi/ipc.h"
#include "stream.hpp"

namespace pliant::cuda {

/// Recorded and awaited by the threads of streams: an event of CUDA's own that passes between processes knows its last
/// recording only, none that CUDA was not given yet, and not that its process has died. All calls may come from any
/// thread.
class IpcEvent {
 public:
  /// `watch` lives longer.
  IpcEvent(DevicePtr device, accelerator::ProcessWatch& watch);
  /// That of another process. Throws as accelerator::import_event does.
  IpcEvent(DevicePtr device, const pliant_ipc_handle& handle, accelerator::ProcessWatch& watch);
  ~IpcEvent();
  IpcEvent(const IpcEvent&) = delete;
  IpcEvent& operator=(const IpcEvent&) = delete;

  /// The descriptor is a new one, the caller's. Throws PLIANT_INVALID_ARGUMENT for an event of another process.
  [[nodiscard]] pliant_ipc_handle handle() const;
  void record(Stream& stream);
  [[nodiscard]] bool query() const;
  void synchronize() const;
  void make_wait(Stream& stream) const;

 private:
  struct Latest {
    accelerator::SharedEvent::Recording recording;
    std::shared_ptr<devices::FailureSlot> failures;  ///< of the stream, where this process recorded
    uint64_t work = 0;                               ///< the recording's number there
  };
  [[nodiscard]] Latest latest() const;

  const DevicePtr device_;
  const std::shared_ptr<accelerator::SharedEvent> page_;  // enqueued work has a share
  mutable std::mutex mutex_;
  Latest own_;  ///< this process's last recording
};

}  // namespace pliant::cuda
