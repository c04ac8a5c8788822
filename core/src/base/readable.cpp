// Asks the kernel to read a set of signals there, for a change of the signal mask that it does not know.
#include "base/readable.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace pliant {
namespace {

constexpr uintptr_t kSetBytes = 8;  // what the kernel takes for a set; aligned, it lies in one page
constexpr uintptr_t kPageBytes = 4096;
constexpr int kNoSuchChange = ~0;

bool is_readable(uintptr_t byte) {
  if (byte < kSetBytes) return false;  // no set is no fault
  const int before = errno;
  // The kernel copies the set before it looks at what is to be done with it: EFAULT, or EINVAL.
  const long result = ::syscall(SYS_rt_sigprocmask, kNoSuchChange, byte - byte % kSetBytes, nullptr, kSetBytes);
  const bool faulted = result != 0 && errno == EFAULT;
  errno = before;
  return !faulted;
}

}  // namespace

bool is_readable(const void* memory, uint64_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t last = first + (bytes - 1);
  if (last < first || !is_readable(first)) return false;
  return first / kPageBytes == last / kPageBytes || is_readable(last);
}

}  // namespace pliant
