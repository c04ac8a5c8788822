// Runtime: what one instance sees of Level Zero: its devices, and a context for each driver.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api.hpp"
#include "common/processes/owner_process.hpp"
#include "host_pointers.hpp"

namespace pliant::level_zero {

/// A context of one driver. Shared by all that lives in it, so that it goes last.
struct Context {
  Context(const Api& functions, ze_driver_handle_t driver, uint32_t version);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Api api;
  const uint32_t version;  ///< of the driver's API
  const pid_t owner;       ///< the process that may use it
  const HostPointers host_pointers;
  ze_context_handle_t handle = nullptr;
};

/// Queues of one kind that a device has.
struct QueueGroup {
  uint32_t ordinal = 0;
  uint32_t queues = 1;
};

/// The clock of a device.
struct Timer {
  ze_device_handle_t device = nullptr;
  double ticks_per_second = 1;
  uint64_t mask = ~uint64_t{0};  ///< where ticks wrap around
};

struct DeviceEntry {
  ze_device_handle_t handle = nullptr;
  std::shared_ptr<Context> context;
  std::string name;
  uint64_t memory_bytes = 0;
  uint64_t largest_alloc_bytes = 0;
  bool reaches_plain_memory = false;  ///< its copies take what malloc gave
  bool has_shared_memory = false;     ///< at one address for it and the CPU
  bool has_ipc = false;               ///< its memory can be given to other processes
  bool has_doubles = false;
  ze_device_fp_flags_t float_flags = 0;   ///< what its 32-bit floats are
  ze_device_fp_flags_t double_flags = 0;  ///< what its 64-bit floats are
  uint32_t group_size = 1;                ///< work items of a kernel's group
  uint32_t most_groups = 1;               ///< that are launched at once
  bool has_event_ipc = false;             ///< events, too
  uint64_t device_list = 0;  ///< a digest of which devices its driver shows to this process, and how ordered
  Timer timer;
  QueueGroup compute;
  std::vector<QueueGroup> copy;  ///< engines that only copy; may be empty
};

class Runtime {
 public:
  /// Drivers with an older API lack the clock in ticks per second.
  static constexpr uint32_t kOldestApi = ZE_MAKE_VERSION(1, 2);

  /// Never fails: what is missing makes that there are no devices, and why_none() says it.
  explicit Runtime(const std::string& loader);

  [[nodiscard]] const std::vector<DeviceEntry>& devices() const { return devices_; }
  [[nodiscard]] const std::string& why_none() const { return why_none_; }
  /// Throws in a process that was forked from the one that made this: drivers do not survive a fork.
  void require_owner() const;

 private:
  std::string find_devices(const std::string& loader);
  void add_devices_of(ze_driver_handle_t driver, uint32_t version);

  const pid_t owner_;
  Api api_;
  std::vector<DeviceEntry> devices_;
  std::string why_none_;
};

/// Throws in a process other than `owner`.
inline void require_process(pid_t owner) {
  accelerator::require_process(owner, "Level Zero");
}

}  // namespace pliant::level_zero
