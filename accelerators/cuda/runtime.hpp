// Runtime: what one instance sees of CUDA: the runtime library and its devices.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api.hpp"
#include "common/processes/owner_process.hpp"

namespace pliant::cuda {

/// One device. Shared by all that lives on it.
struct DeviceEntry {
  Api api;
  pid_t owner = 0;  ///< the process that may use it
  int index = 0;
  std::string name;
  uint64_t memory_bytes = 0;
  bool shares_memory = false;     ///< managed memory that the CPU may touch at any time
  bool registers_memory = false;  ///< it reaches memory that the program registered, at the program's addresses
  bool has_pools = false;
  bool has_ipc = false;      ///< memory and events pass between processes
  uint64_t bus_address = 0;  ///< the card's, the same in all processes of the machine
  int least_priority = 0;
  int greatest_priority = 0;
  uint32_t processors = 1;
};
using DevicePtr = std::shared_ptr<const DeviceEntry>;

class Runtime {
 public:
  /// `file` is the runtime library, or "" for the newest of those known. Never fails: what is missing makes that there
  /// are no devices, and why_none() says it.
  explicit Runtime(const std::string& file);

  [[nodiscard]] const std::vector<DevicePtr>& devices() const { return devices_; }
  [[nodiscard]] const std::string& why_none() const { return why_none_; }
  /// Throws in a process that was forked from the one that made this: CUDA does not survive a fork.
  void require_owner() const;

 private:
  /// What came of a file.
  enum class Found {
    kSettled,      ///< devices, or why there are none, whatever other files there are
    kNoFile,       ///< it cannot be opened
    kOlderDriver,  ///< an older runtime may do with the driver
  };
  /// Sets devices_ or why_none_.
  Found try_file(const std::string& file);
  void add_device(const Api& api, int index);

  const pid_t owner_;
  std::vector<DevicePtr> devices_;
  std::string why_none_;
};

/// Throws in a process other than `owner`.
inline void require_process(pid_t owner) {
  accelerator::require_process(owner, "CUDA");
}

}  // namespace pliant::cuda
