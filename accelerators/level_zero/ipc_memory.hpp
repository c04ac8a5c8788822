// IpcMemory: device memory that this instance has given to other processes, or mapped from them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "common/processes/process.hpp"
#include "pliant/abi/ipc.h"
#include "runtime.hpp"

namespace pliant::level_zero {

/// All calls may come from any thread.
class IpcMemory {
 public:
  IpcMemory() = default;
  /// Closes what was not released.
  ~IpcMemory();
  IpcMemory(const IpcMemory&) = delete;
  IpcMemory& operator=(const IpcMemory&) = delete;

  /// `pointer` begins an allocation. The descriptor is a new one, the caller's.
  pliant_ipc_handle export_memory(const DeviceEntry& entry, const void* pointer);
  /// Before the memory is freed: its handle is refused from now on. Other pointers are left alone.
  void retire(const void* pointer);

  /// One mapping for all imports of one allocation on one device. Throws PLIANT_INVALID_ARGUMENT for what is no handle,
  /// PLIANT_FAILED_PRECONDITION when the allocation is gone, or of this process.
  void* import_memory(const DeviceEntry& entry, int32_t device, const pliant_ipc_handle& handle);
  void release_memory(void* pointer);

 private:
  /// Tells allocations apart, of all processes and for all time.
  using Nonce = std::pair<uint64_t, uint64_t>;
  struct Label;  // what a handle's bytes are
  struct Exported {
    std::shared_ptr<Context> context;
    ze_ipc_mem_handle_t handle;
    Nonce nonce;
    accelerator::UniqueFd sign;  ///< a socket that listens under the name of the allocation while it lives
  };
  struct Imported {
    std::shared_ptr<Context> context;
    int32_t device;
    Nonce nonce;
    uint64_t count;
  };
  Exported make(const DeviceEntry& entry, const void* pointer) const;

  std::mutex mutex_;
  std::map<const void*, Exported> exported_;
  std::map<void*, Imported> imported_;
};

}  // namespace pliant::level_zero
