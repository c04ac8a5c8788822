// Refuses what a fork would do with its parent's driver.
#include "common/processes/owner_process.hpp"

#include <unistd.h>

#include <string>

#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

void require_process(pid_t owner, const char* driver) {
  if (::getpid() == owner) return;
  const std::string name = driver;
  throw sdk::Failure(PLIANT_FAILED_PRECONDITION, "process " + std::to_string(::getpid()) + " was forked from process " +
                                                     std::to_string(owner) + ", which opened " + name + ", and " +
                                                     name +
                                                     " does not survive a fork; open the accelerator after the fork, "
                                                     "or start a new process");
}

}  // namespace pliant::accelerator
