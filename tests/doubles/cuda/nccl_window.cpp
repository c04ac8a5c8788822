// Windows of the software NCCL: the memory that they are made of, and how it becomes one.
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "nccl_rank.hpp"

namespace {

using namespace pliant::cuda;

constexpr uint64_t kBlock = uint64_t{2} << 20U;
constexpr uint64_t kPage = 4096;

std::mutex memory_mutex;
/// From where it begins to what cudaMalloc gave.
std::map<std::byte*, void*>& memory() {
  static auto* const kAll = new std::map<std::byte*, void*>;
  return *kAll;
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

/// Allocations of ncclMemAlloc that live: asked by tests.
int64_t pliant_soft_nccl_allocations() {
  const std::lock_guard lock(memory_mutex);
  return static_cast<int64_t>(memory().size());
}

NcclResult ncclMemAlloc(void** out, size_t bytes) {
  const uint64_t whole = (bytes + kBlock - 1) / kBlock * kBlock;
  void* made = nullptr;
  if (bytes == 0 || cudaMalloc(&made, whole + kPage) != cudaSuccess) return kNcclUnhandledCudaError;
  const auto address = reinterpret_cast<uintptr_t>(made);
  auto* const begin = static_cast<std::byte*>(made) + (kPage - address % kPage) % kPage;
  const std::lock_guard lock(memory_mutex);
  memory().emplace(begin, made);
  *out = begin;
  return kNcclSuccess;
}
NcclResult ncclMemFree(void* pointer) {
  void* made = nullptr;
  {
    const std::lock_guard lock(memory_mutex);
    const auto found = memory().find(static_cast<std::byte*>(pointer));
    if (found == memory().end()) return kNcclInvalidArgument;
    made = found->second;
    memory().erase(found);
  }
  return cudaFree(made) == cudaSuccess ? kNcclSuccess : kNcclUnhandledCudaError;
}
NcclResult ncclCommWindowRegister(NcclComm comm, void* pointer, size_t bytes, NcclWindow* out, int flags) {
  *out = nullptr;
  const auto rank = soft_nccl::of(comm);
  if (!rank || flags != 1 || bytes == 0 || reinterpret_cast<uintptr_t>(pointer) % kPage != 0) {
    return kNcclInvalidArgument;
  }
  {
    const std::lock_guard lock(memory_mutex);
    if (memory().empty() || memory().upper_bound(static_cast<std::byte*>(pointer)) == memory().begin()) {
      return kNcclInvalidArgument;
    }
  }
  return rank->register_window(pointer, bytes, out);
}

#pragma GCC visibility pop
}  // extern "C"
