// IpcMemory: device memory that this instance has given to other processes, or mapped from them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "pliant/abi/ipc.h"
#include "runtime.hpp"
#include "shared_page.hpp"

namespace pliant::cuda {

/// All calls may come from any thread.
class IpcMemory {
 public:
  IpcMemory() = default;
  /// Closes what was not released.
  ~IpcMemory();
  IpcMemory(const IpcMemory&) = delete;
  IpcMemory& operator=(const IpcMemory&) = delete;

  /// `pointer` is exchange memory, as alloc gave it. The descriptor is a new one, the caller's.
  pliant_ipc_handle export_memory(const DeviceEntry& device, void* pointer);
  /// Before the memory is freed: its handle is refused from now on. Other pointers are left alone.
  void retire(const void* pointer);

  /// One mapping for all imports of one allocation on one device. Throws PLIANT_INVALID_ARGUMENT for what is no handle,
  /// PLIANT_FAILED_PRECONDITION when the allocation is gone, or of this process.
  void* import_memory(const DevicePtr& device, const pliant_ipc_handle& handle);
  void release_memory(int32_t device, void* pointer);

 private:
  struct Exported {
    SharedPage page;
    cudaIpcMemHandle_t handle;
    pid_t owner;
  };
  struct Imported {
    DevicePtr device;
    Nonce nonce;
    uint64_t count;
  };
  std::mutex mutex_;
  std::map<const void*, Exported> exported_;
  std::map<std::pair<int32_t, void*>, Imported> imported_;  ///< devices may have it at one address
};

}  // namespace pliant::cuda
