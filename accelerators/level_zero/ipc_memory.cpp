// Handles of Level Zero and the descriptors in them. Level Zero opens a handle as long as somebody has its descriptor,
// so that the allocation is still there is told by a socket that listens in the owner's process: nobody connects for
// longer than it takes to see that it is there.
#include "ipc_memory.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include "pliant/sdk/plugin.hpp"
#include "result.hpp"

namespace pliant::level_zero {

using accelerator::pid_namespace;
using accelerator::UniqueFd;
using sdk::Failure;

namespace {

constexpr uint64_t kIpcMemoryMagic = 0x31455a544e4c5049;  // "IPLNTZE1"

/// Where a handle of Level Zero carries a descriptor it is at its begin. Those of the standard streams it never is.
int descriptor_in(const ze_ipc_mem_handle_t& handle) {
  int32_t fd = -1;
  std::memcpy(&fd, handle.data, sizeof(fd));
  return fd > 2 && ::fcntl(fd, F_GETFD) >= 0 ? fd : -1;
}

/// The abstract socket of an allocation.
struct Sign {
  explicit Sign(const std::pair<uint64_t, uint64_t>& nonce) {
    address.sun_family = AF_UNIX;
    const int written =
        std::snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "pliant-ze-%016llx%016llx",
                      static_cast<unsigned long long>(nonce.first), static_cast<unsigned long long>(nonce.second));
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(written));
  }
  [[nodiscard]] const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address{};
  socklen_t length = 0;
};

UniqueFd open_socket() {
  UniqueFd made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("cannot create a socket for memory between processes: ") +
                                                 std::strerror(errno) + "; close some or raise ulimit -n");
  }
  return made;
}

bool is_there(const Sign& sign) {
  const UniqueFd probe = open_socket();
  // EAGAIN: it listens, and others have asked, too.
  return ::connect(probe.get(), sign.raw(), sign.length) == 0 || errno == EAGAIN;
}

}  // namespace

struct IpcMemory::Label {
  uint64_t magic;
  uint64_t pid;
  uint64_t pid_namespace;
  uint64_t nonce[2];
  ze_ipc_mem_handle_t handle;
  uint32_t has_descriptor;
};

IpcMemory::~IpcMemory() {
  for (const auto& [pointer, one] : imported_) {
    if (::getpid() == one.context->owner) one.context->api.zeMemCloseIpcHandle(one.context->handle, pointer);
  }
  while (!exported_.empty()) retire(exported_.begin()->first);
}

IpcMemory::Exported IpcMemory::make(const DeviceEntry& entry, const void* pointer) const {
  uint64_t drawn[2] = {};
  if (::getrandom(drawn, sizeof(drawn), 0) != static_cast<ssize_t>(sizeof(drawn))) {
    throw Failure(PLIANT_INTERNAL, std::string("getrandom: ") + std::strerror(errno));
  }
  Exported made{entry.context, {}, {drawn[0], drawn[1]}, open_socket()};
  const Sign sign(made.nonce);
  if (::bind(made.sign.get(), sign.raw(), sign.length) != 0 || ::listen(made.sign.get(), 1) != 0) {
    throw Failure(PLIANT_INTERNAL, std::string("a name for memory between processes: ") + std::strerror(errno));
  }
  check(entry.context->api.zeMemGetIpcHandle(entry.context->handle, pointer, &made.handle), "zeMemGetIpcHandle");
  return made;
}

pliant_ipc_handle IpcMemory::export_memory(const DeviceEntry& entry, const void* pointer) {
  const std::lock_guard lock(mutex_);
  auto found = exported_.find(pointer);
  if (found == exported_.end()) found = exported_.emplace(pointer, make(entry, pointer)).first;
  const Exported& one = found->second;
  Label label{kIpcMemoryMagic, static_cast<uint64_t>(::getpid()),
              pid_namespace(), {one.nonce.first, one.nonce.second},
              one.handle,      0};
  pliant_ipc_handle handle{};
  handle.descriptor = -1;
  if (const int inside = descriptor_in(one.handle); inside >= 0) {
    label.has_descriptor = 1;
    handle.descriptor = ::fcntl(inside, F_DUPFD_CLOEXEC, 0);
    if (handle.descriptor < 0) {
      throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("no file descriptor for a handle: ") + std::strerror(errno) +
                                                   "; close some or raise ulimit -n");
    }
  }
  static_assert(sizeof(label) <= sizeof(handle.bytes));
  std::memcpy(handle.bytes, &label, sizeof(label));
  return handle;
}

void IpcMemory::retire(const void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = exported_.find(pointer);
  if (found == exported_.end()) return;
  const Exported& one = found->second;
  if (::getpid() == one.context->owner) {
    ::shutdown(one.sign.get(), SHUT_RDWR);  // a fork of this process may have it, too
    const Api& api = one.context->api;
    const bool puts = api.zeMemPutIpcHandle != nullptr && one.context->version >= Api::kPutIpcHandleApi;
    if (puts) api.zeMemPutIpcHandle(one.context->handle, one.handle);
  }
  exported_.erase(found);
}

void* IpcMemory::import_memory(const DeviceEntry& entry, int32_t device, const pliant_ipc_handle& handle) {
  Label label{};
  std::memcpy(&label, handle.bytes, sizeof(label));
  sdk::require(label.magic == kIpcMemoryMagic, "the handle is not from level_zero, or was damaged");
  sdk::require(label.pid_namespace == pid_namespace(), "the handle is of another machine or pid namespace");
  if (label.pid == static_cast<uint64_t>(::getpid())) {
    throw Failure(PLIANT_FAILED_PRECONDITION, "the memory belongs to this process; use the pointer from alloc");
  }
  sdk::require(label.has_descriptor == 0 || ::fcntl(handle.descriptor, F_GETFD) >= 0,
               "the handle came without its descriptor; pass it as SCM_RIGHTS");
  const Nonce nonce{label.nonce[0], label.nonce[1]};
  if (!is_there(Sign(nonce))) {
    throw Failure(PLIANT_FAILED_PRECONDITION,
                  "process " + std::to_string(label.pid) +
                      " has freed the memory of this handle, or has ended; export current memory");
  }
  const std::lock_guard lock(mutex_);
  for (auto& [pointer, one] : imported_) {
    if (one.nonce != nonce || one.device != device) continue;
    ++one.count;
    return pointer;
  }
  // The descriptor has another number here than where the handle was made.
  if (label.has_descriptor != 0) std::memcpy(label.handle.data, &handle.descriptor, sizeof(handle.descriptor));
  void* at = nullptr;
  check(entry.context->api.zeMemOpenIpcHandle(entry.context->handle, entry.handle, label.handle, 0, &at),
        "zeMemOpenIpcHandle");
  imported_.emplace(at, Imported{entry.context, device, nonce, 1});
  return at;
}

void IpcMemory::release_memory(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = imported_.find(pointer);
  if (found == imported_.end() || --found->second.count != 0) return;
  const Context& context = *found->second.context;
  context.api.zeMemCloseIpcHandle(context.handle, pointer);
  imported_.erase(found);
}

}  // namespace pliant::level_zero
