// Event pools of the software driver in other processes: a file, whose descriptor is in the first bytes of the handle,
// as that of memory (ipc.cpp).
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>

#include "objects.hpp"

namespace soft_ze {
namespace {

/// The bytes of a handle.
struct EventLabel {
  int32_t fd;
  uint32_t count;
  uint32_t devices;  ///< that the maker sees
  uint32_t magic;
};
static_assert(sizeof(EventLabel) <= sizeof(ze_ipc_event_pool_handle_t));
constexpr uint32_t kMagic = 0x4c4f4f50;

/// The file begins with the bell and goes on with the states.
constexpr uint64_t kHead = 64;

uint32_t devices_seen() {
  return static_cast<uint32_t>(setting("PLIANT_SOFT_ZE_DEVICES", 1));
}

void futex(std::atomic<uint32_t>& word, int what, uint32_t value) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), what, value, nullptr, nullptr, 0);
}

}  // namespace

std::unique_ptr<SharedPool> SharedPool::make(Context& context, int fd, uint32_t count) {
  const uint64_t bytes = kHead + count * sizeof(SharedState);
  const bool is_new = fd < 0;
  if (is_new) fd = ::memfd_create("soft-ze-events", MFD_CLOEXEC);
  struct stat file {};
  const bool fits = is_new ? ::ftruncate(fd, static_cast<off_t>(bytes)) == 0
                           : ::fstat(fd, &file) == 0 && static_cast<uint64_t>(file.st_size) == bytes;
  void* at = fits ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (at == MAP_FAILED) {
    if (is_new && fd >= 0) ::close(fd);
    return nullptr;
  }
  return std::unique_ptr<SharedPool>(new SharedPool(context, is_new ? fd : -1, at, bytes));
}

SharedPool::SharedPool(Context& context, int fd, void* mapped, uint64_t bytes)
    : context_(context),
      fd_(fd),
      mapped_(mapped),
      bytes_(bytes),
      bell_(*static_cast<std::atomic<uint32_t>*>(mapped)),
      states_(reinterpret_cast<SharedState*>(static_cast<std::byte*>(mapped) + kHead)),
      thread_([this] { listen(); }) {}

SharedPool::~SharedPool() {
  closing_ = true;
  ring();
  thread_.join();
  ::munmap(mapped_, bytes_);
  if (fd_ >= 0) ::close(fd_);
}

void SharedPool::ring() const {
  ++bell_;
  futex(bell_, FUTEX_WAKE, INT_MAX);
}

void SharedPool::listen() {
  uint32_t heard = 0;
  while (!closing_) {
    const uint32_t bell = bell_;
    if (bell == heard) {
      futex(bell_, FUTEX_WAIT, bell);
      continue;
    }
    heard = bell;
    const std::lock_guard lock(context_.mutex);
    context_.changed.notify_all();
  }
}

void Event::set_signalled(bool signalled) {
  if (!pool->shared) {
    signalled_here = signalled;
    return;
  }
  pool->shared->state(index).signalled = signalled ? 1 : 0;
  if (signalled) pool->shared->ring();
}

ze_result_t ZE_APICALL event_pool_get_ipc_handle(ze_event_pool_handle_t handle, ze_ipc_event_pool_handle_t* out) {
  if (out == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (setting("PLIANT_SOFT_ZE_EVENT_IPC", 1) == 0) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  EventPool& pool = of(handle);
  if (pool.shared == nullptr || pool.imported) {
    violation("a handle was wanted of a pool that was made without ZE_EVENT_POOL_FLAG_IPC, or opened");
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  const EventLabel label{pool.shared->fd(), static_cast<uint32_t>(pool.taken.size()), devices_seen(), kMagic};
  *out = {};
  std::memcpy(out->data, &label, sizeof(label));
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL event_pool_open_ipc_handle(ze_context_handle_t context, ze_ipc_event_pool_handle_t given,
                                                  ze_event_pool_handle_t* out) {
  if (out == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  EventLabel label{};
  std::memcpy(&label, given.data, sizeof(label));
  if (label.devices != devices_seen()) violation("an event pool was opened where other devices are seen");
  auto made = std::make_unique<EventPool>();
  if (label.magic == kMagic) made->shared = SharedPool::make(of(context), label.fd, label.count);
  if (made->shared == nullptr) {
    violation("a handle was opened whose descriptor is not that of the event pool");
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
  made->context = &of(context);
  made->flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_IPC;
  made->taken.resize(label.count);
  made->imported = true;
  ++counts().event_pools;
  *out = reinterpret_cast<ze_event_pool_handle_t>(made.release());
  return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL event_pool_close_ipc_handle(ze_event_pool_handle_t handle) {
  EventPool& pool = of(handle);
  if (!pool.imported) violation("an event pool was closed that was not opened");
  pool.imported = false;
  return event_pool_destroy(handle);
}

}  // namespace soft_ze
