// Asks the kernel to read a set of signals there, for a change of the signal mask that it does not know; and, of what
// lies between two pages, to begin to write back what is mapped there, which begins nothing and tells of a hole.
#include "base/readable.hpp"

#include <sys/mman.h>
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

bool is_mapped(const void* memory, uint64_t bytes) {
  const uintptr_t into = reinterpret_cast<uintptr_t>(memory) % static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  void* const page = const_cast<char*>(static_cast<const char*>(memory) - into);
  const int before = errno;
  const int result = ::msync(page, bytes + into, MS_ASYNC);
  const bool has_hole = result != 0 && errno == ENOMEM;
  errno = before;
  return !has_hole;
}

}  // namespace

bool is_readable(const void* memory, uint64_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t last = first + (bytes - 1);
  if (last < first || !is_readable(first)) return false;
  return first / kPageBytes == last / kPageBytes || (is_readable(last) && is_mapped(memory, bytes));
}

}  // namespace pliant
