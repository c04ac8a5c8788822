// Memory of the software runtime between processes: a handle names a file that its process has open.
#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "soft.hpp"

namespace soft_cuda {
namespace {

/// What is in the 64 bytes of a handle.
struct Label {
  int32_t pid;
  int32_t fd;
  int32_t device;
  uint64_t nonce;
  uint64_t bytes;
  uint64_t mapped;
};
static_assert(sizeof(Label) <= CUDA_IPC_HANDLE_SIZE);

constexpr uint64_t kBlock = uint64_t{2} << 20U;

template <class Handle>
Label label_in(const Handle& handle) {
  Label label;
  std::memcpy(&label, handle.reserved, sizeof(label));
  return label;
}
template <class Handle>
void put(Handle& handle, const Label& label) {
  std::memset(&handle, 0, sizeof(handle));
  std::memcpy(handle.reserved, &label, sizeof(label));
}

/// The file that the label names, of the size that it names; -1 when the process has none such.
int open_file(const Label& label, uint64_t size) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", label.pid, label.fd);
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  struct stat seen {};
  if (fd >= 0 && ::fstat(fd, &seen) == 0 && S_ISREG(seen.st_mode) && static_cast<uint64_t>(seen.st_size) == size) {
    return fd;
  }
  if (fd >= 0) ::close(fd);
  return -1;
}

bool is_running(pid_t pid) {
  const auto watched = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (watched < 0) return false;
  pollfd asked{watched, POLLIN, 0};
  const bool ended = ::poll(&asked, 1, 0) == 1;
  ::close(watched);
  return !ended;
}

/// An allocation of another process, or why not. Under the mutex.
cudaError_t open_memory(const Label& label, AllocationPtr& out) {
  const int fd = open_file(label, label.mapped);
  if (fd < 0) return cudaErrorMapBufferObjectFailed;
  auto made = std::make_shared<Allocation>();
  made->fd = fd;
  made->bytes = label.bytes;
  made->device = label.device;
  if (!made->map(fd, label.mapped, true)) return cudaErrorMemoryAllocation;
  if (made->trailer().nonce != label.nonce) return cudaErrorInvalidResourceHandle;
  for (std::atomic<int32_t>& importer : made->trailer().importers) {
    int32_t none = 0;
    if (!importer.compare_exchange_strong(none, ::getpid())) continue;
    out = std::move(made);
    return cudaSuccess;
  }
  return cudaErrorTooManyPeers;
}

}  // namespace

uint64_t drawn() {
  uint64_t word = 0;
  return ::getrandom(&word, sizeof(word), 0) == sizeof(word) ? word : 0;
}

bool is_imported(const Allocation& allocation) {
  if (allocation.type != cudaMemoryTypeDevice || allocation.pool != nullptr) return false;
  for (const std::atomic<int32_t>& importer : allocation.trailer().importers) {
    if (importer != 0 && is_running(importer)) return true;
  }
  return false;
}

}  // namespace soft_cuda

using namespace soft_cuda;

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  if (!all.settings.has_ipc) return told(cudaErrorNotSupported);
  const auto found = all.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == all.allocations.end()) return told(cudaErrorInvalidValue);
  const Allocation& one = *found->second;
  if (one.type != cudaMemoryTypeDevice || one.pool != nullptr || one.opened != 0) return told(cudaErrorInvalidValue);
  if (one.bytes % kBlock != 0) {
    all.violation("a handle was asked for memory that shares its block with other allocations");
  }
  put(*handle, {::getpid(), one.fd, one.device, one.trailer().nonce, one.bytes, one.mapped});
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t handle, unsigned flags) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  const Label label = label_in(handle);
  if (!all.settings.has_ipc) return told(cudaErrorNotSupported);
  if (flags != cudaIpcMemLazyEnablePeerAccess) return told(cudaErrorInvalidValue);
  if (label.pid == ::getpid()) return told(cudaErrorInvalidResourceHandle);
  if (label.device != current_device() && !all.settings.has_peers) return told(cudaErrorPeerAccessUnsupported);
  for (auto& [address, one] : all.allocations) {
    if (one->opened == 0 || one->trailer().nonce != label.nonce || one->opener != current_device()) continue;
    ++one->opened;
    *out = one->address;
    return cudaSuccess;
  }
  AllocationPtr made;
  if (const cudaError_t opened = open_memory(label, made); opened != cudaSuccess) return told(opened);
  made->opened = 1;
  made->opener = current_device();
  *out = made->address;
  all.allocations.emplace(reinterpret_cast<uintptr_t>(made->address), std::move(made));
  return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const auto found = all.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == all.allocations.end() || found->second->opened == 0) {
    all.violation("memory was closed that was not opened");
    return told(cudaErrorInvalidValue);
  }
  Allocation& one = *found->second;
  if (--one.opened != 0) return told(usable());
  if (one.in_use != 0 && !all.lost) all.violation("memory of another process was closed while commands use it");
  for (std::atomic<int32_t>& importer : one.trailer().importers) {
    int32_t self = ::getpid();
    if (importer.compare_exchange_strong(self, 0)) break;
  }
  all.allocations.erase(found);
  return told(usable());
}

}  // extern "C"
