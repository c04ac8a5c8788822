// Device memory that passes between processes: a handle to it, and the memory of another process mapped here.
#pragma once

#include <cstdint>
#include <utility>

#include "pliant/abi/ipc.h"
#include "pliant/accelerator.hpp"
#include "pliant/sdk/calls.hpp"

namespace pliant::detail {

/// Names memory of this process to others (pliant.ipc/0). Owns its descriptor. Movable.
class MemoryHandle {
 public:
  /// Of the allocation that `allocated`, of MemoryKind::kExchange, begins; good until that is freed. Throws
  /// kUnimplemented where the accelerator passes no memory on, and what it has against the pointer.
  MemoryHandle(const Accelerator& accelerator, int32_t device, const void* allocated);
  ~MemoryHandle();
  MemoryHandle(MemoryHandle&& other) noexcept;
  MemoryHandle& operator=(MemoryHandle&& other) noexcept;
  /// What is passed on: the bytes as they are, the descriptor, where there is one, as SCM_RIGHTS.
  [[nodiscard]] const pliant_ipc_handle& raw() const { return raw_; }

 private:
  pliant_ipc_handle raw_{};
};

/// Memory of another process at an address of this one. Ends when no enqueued work uses it, and before its owner frees
/// it. Movable.
class ImportedMemory {
 public:
  /// The handle's descriptor stays the caller's. Throws kUnimplemented likewise, kFailedPrecondition where the memory
  /// is gone or of this process, kInvalidArgument for what is no handle.
  ImportedMemory(const Accelerator& accelerator, int32_t device, const pliant_ipc_handle& handle);
  ImportedMemory(ImportedMemory&& other) noexcept = default;
  ImportedMemory& operator=(ImportedMemory&& other) noexcept {  // each memory stays with its accelerator
    std::swap(accelerator_, other.accelerator_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  [[nodiscard]] const void* pointer() const { return memory_.get(); }

 private:
  Accelerator accelerator_;  // lives longer than its memory
  sdk::ImportedMemory memory_;
};

}  // namespace pliant::detail
