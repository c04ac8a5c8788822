// ProcessId: one process of this machine, told apart from a later one with the same pid. UniqueFd: an owned descriptor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <utility>

namespace pliant::accelerator {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept;

 private:
  int fd_ = -1;
};

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

/// Differs between machines, boots and pid namespaces: a pid means the same process only where this is equal. Throws as
/// self_for_others does.
uint64_t pid_space();

}  // namespace pliant::accelerator
