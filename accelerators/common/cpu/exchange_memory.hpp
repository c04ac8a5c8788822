// ExchangeMemory: memory that other processes of this machine map: files without a name, passed on as descriptors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "common/cpu/memory.hpp"
#include "common/processes/process.hpp"
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

  /// Where processes of one user find a range of memory of each other, with no descriptor passed.
  struct Card {
    uint64_t process;
    uint64_t pid_space;
    uint64_t nonce[2];
    uint64_t bytes;      ///< of the allocation
    uint64_t offset;     ///< of the range in it
    int64_t descriptor;  ///< in that process; -1: there is no such memory
  };
  /// Of a range that lies in one allocation of this; else a card that nobody can open.
  [[nodiscard]] Card card_of(const void* pointer, uint64_t bytes) const;
  /// The range lies in one allocation of this; also in a forked child, which has no say in it.
  [[nodiscard]] bool holds(const void* pointer, uint64_t bytes) const;
  /// The allocation that the pointer leads into; empty where there is none.
  [[nodiscard]] std::optional<MemoryPool::Block> block_of(const void* pointer) const;
  /// The range that `card` was made of has not been freed.
  [[nodiscard]] bool is_there(const void* pointer, const Card& card) const;
  /// What a card shows, mapped to be read for as long as the pointer lives, whatever its owner does; of this process,
  /// too. Throws PLIANT_FAILED_PRECONDITION when its process cannot be looked into or has freed it, and
  /// PLIANT_RESOURCE_EXHAUSTED.
  static std::shared_ptr<const std::byte> open(const Card& card);

 private:
  /// Tells allocations apart, of all processes and for all time.
  using Nonce = std::pair<uint64_t, uint64_t>;
  struct Label;  // what a handle's bytes are
  struct Seal;   // behind the bytes of the allocation, in the last page of the file

  /// A file, mapped.
  class Mapping {
   public:
    enum class Use { kRead, kWrite };
    Mapping(int fd, uint64_t bytes, Use use = Use::kWrite);
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
  struct Part {
    const Owned* of;
    uint64_t offset;
  };
  /// Needs the lock.
  [[nodiscard]] std::optional<Part> part(const void* pointer, uint64_t bytes) const;
  static uint64_t file_bytes(uint64_t bytes);
  /// The file of `descriptor`, which must be that of the label.
  static Mapping map(int32_t descriptor, const Label& label, Mapping::Use use = Mapping::Use::kWrite);
  static Owned make(uint64_t bytes);
  static void retire(const Owned& one);

  MemoryPool& pool_;
  mutable std::mutex mutex_;
  std::map<const void*, Owned> owned_;
  std::map<void*, Imported> imported_;
};

}  // namespace pliant::accelerator
