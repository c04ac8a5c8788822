// ExchangeMemory: memory that other processes of this machine map: files without a name, passed on as descriptors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "kernel/memory.hpp"
#include "kernel/process.hpp"
#include "pliant/abi/ipc.h"

namespace pliant::accelerator {

/// All calls may come from any thread.
class ExchangeMemory {
 public:
  /// What is allocated counts as memory of `pool`.
  explicit ExchangeMemory(MemoryPool& pool) : pool_(pool) {}
  /// Frees and releases what was not.
  ~ExchangeMemory();
  ExchangeMemory(const ExchangeMemory&) = delete;
  ExchangeMemory& operator=(const ExchangeMemory&) = delete;

  /// Throws PLIANT_RESOURCE_EXHAUSTED past the limit or when there is none.
  void* alloc(uint64_t bytes);
  /// A pointer that is not of this is left alone. Handles to it are refused from now on.
  void free(void* pointer);

  /// The descriptor is a new one, the caller's. Throws PLIANT_INVALID_ARGUMENT for a pointer that alloc did not give.
  [[nodiscard]] pliant_ipc_handle export_memory(const void* pointer) const;
  /// One mapping for all imports of one allocation. Throws PLIANT_INVALID_ARGUMENT for what is no handle,
  /// PLIANT_FAILED_PRECONDITION when the allocation is gone, or of this process.
  void* import_memory(const pliant_ipc_handle& handle);
  void release_memory(void* pointer);

 private:
  /// Tells allocations apart, of all processes and for all time.
  using Nonce = std::pair<uint64_t, uint64_t>;
  struct Label;  // what a handle's bytes are
  struct Seal;   // behind the bytes of the allocation, in the last page of the file

  /// A file, mapped.
  class Mapping {
   public:
    Mapping(int fd, uint64_t bytes);
    ~Mapping();
    Mapping(Mapping&& other) noexcept;
    Mapping& operator=(Mapping&&) = delete;
    [[nodiscard]] std::byte* begin() const { return begin_; }
    [[nodiscard]] Seal& seal() const;

   private:
    std::byte* begin_ = nullptr;
    uint64_t mapped_ = 0;
  };
  struct Owned {
    UniqueFd file;
    Mapping mapping;
    uint64_t bytes;
    Nonce nonce;
    int32_t owner;  ///< pid; a fork of it has the mapping, and not the say
  };
  struct Imported {
    Mapping mapping;
    Nonce nonce;
    uint64_t count;
  };
  static uint64_t file_bytes(uint64_t bytes);
  static Owned make(uint64_t bytes);
  static void retire(const Owned& one);

  MemoryPool& pool_;
  mutable std::mutex mutex_;
  std::map<const void*, Owned> owned_;
  std::map<void*, Imported> imported_;
};

}  // namespace pliant::accelerator
