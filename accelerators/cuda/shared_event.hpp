// SharedEvent: an event that passes between processes.
#pragma once

#include <memory>
#include <mutex>

#include "pliant/abi/ipc.h"
#include "shared_page.hpp"
#include "stream.hpp"

namespace pliant::cuda {

/// One event of CUDA, recorded over and over. A recording that waits for host work of its stream is not with CUDA yet
/// when the call returns; so the processes count the recordings that were asked for and those that CUDA has, and who
/// waits for one waits until CUDA has it. All calls may come from any thread; enqueued work owns a share.
class SharedEvent : public std::enable_shared_from_this<SharedEvent> {
 public:
  explicit SharedEvent(DevicePtr device);
  /// That of another process. Throws as IpcMemory::import_memory does.
  SharedEvent(DevicePtr device, const pliant_ipc_handle& handle);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  /// The descriptor is a new one, the caller's. Throws PLIANT_INVALID_ARGUMENT for an event of another process.
  [[nodiscard]] pliant_ipc_handle handle() const;
  /// These throw PLIANT_FAILED_PRECONDITION once the process that made the event has destroyed it.
  void record(Stream& stream);
  [[nodiscard]] bool query() const;
  void synchronize();
  void make_wait(Stream& stream);

 private:
  SharedEvent(DevicePtr device, const pliant_ipc_handle& handle, const HandleLabel& label);
  void require_there() const;
  void submit(uint32_t number, const Api& api, cudaStream_t stream) const;

  const DevicePtr device_;
  const SharedPage page_;
  const bool is_own_;
  cudaEvent_t event_ = nullptr;
  std::mutex mutex_;  ///< of the next two: this process's last recording
  std::shared_ptr<devices::FailureSlot> failures_;
  uint64_t work_ = 0;
};

}  // namespace pliant::cuda
