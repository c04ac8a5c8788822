// Keeps the number on a page that a forked child finds empty.
#include "common/processes/this_process.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <string>

#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

namespace {

using Number = std::atomic<pid_t>;

/// NULL where the system has no such pages. It stays: threads may ask for as long as the process lives.
Number* wiped_by_fork() {
  constexpr size_t kBytes = 4096;
  void* const page = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (::madvise(page, kBytes, MADV_WIPEONFORK) == 0) return new (page) Number(0);
  ::munmap(page, kBytes);
  return nullptr;
}

}  // namespace

pid_t this_process() {
  static Number* const kNumber = wiped_by_fork();
  if (kNumber == nullptr) return ::getpid();
  pid_t number = kNumber->load(std::memory_order_relaxed);
  if (number == 0) kNumber->store(number = ::getpid(), std::memory_order_relaxed);
  return number;
}

void require_own(pid_t owner, const char* what) {
  const pid_t here = this_process();
  if (here == owner) return;
  throw sdk::Failure(PLIANT_FAILED_PRECONDITION,
                     std::string("this ") + what + " is of process " + std::to_string(owner) + ", and process " +
                         std::to_string(here) +
                         " was forked from it: threads do not survive a fork; open the accelerator after the fork, or "
                         "start a new process");
}

}  // namespace pliant::accelerator
