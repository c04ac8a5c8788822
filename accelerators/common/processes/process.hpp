// ProcessId: one process of this machine, distinct from a later one with the same pid.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "common/processes/unique_fd.hpp"

namespace pliant::accelerator {

/// Packs into one word, so that a rank can claim its place in shared memory with one compare-and-swap.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start = 0;  ///< clock ticks after boot at which it started

  [[nodiscard]] uint64_t packed() const { return (start << 22U) | static_cast<uint64_t>(pid); }
  static ProcessId unpack(uint64_t word) {
    return {static_cast<pid_t>(word & ((uint64_t{1} << 22U) - 1)), word >> 22U};
  }
  bool operator==(const ProcessId&) const = default;

  static ProcessId self();
  /// To be told to other processes, which would take one without a start for dead. Throws sdk::Failure
  /// (PLIANT_RESOURCE_EXHAUSTED) when the system does not tell, most often for want of a descriptor.
  static ProcessId self_for_others();
  /// start == 0 when there is no such process, or the system does not tell; errno says which.
  static ProcessId of(pid_t pid);
};

/// A pidfd, which polls readable when the process has ended. Empty with errno ESRCH when it has ended already, another
/// errno when it cannot be watched.
UniqueFd watch_process(const ProcessId& process);

/// False once the process has ended, whether or not its parent has noticed. True where the system does not tell.
[[nodiscard]] bool is_running(const ProcessId& process);

/// Differs between pid namespaces of one machine; 0 where /proc is not there.
[[nodiscard]] uint64_t pid_namespace();

/// Differs between machines, boots and pid namespaces: a pid means the same process only where this is equal. Throws as
/// self_for_others does.
uint64_t pid_space();

}  // namespace pliant::accelerator
