// The number of this process, for the price of reading a word, and refusals for children that a process forks.
#pragma once

#include <sys/types.h>

namespace pliant::accelerator {

/// As getpid, which asks the system every time.
pid_t this_process();

/// Throws PLIANT_FAILED_PRECONDITION unless this process is `owner`. `what`: "stream", "event", "communicator".
void require_own(pid_t owner, const char* what);

}  // namespace pliant::accelerator
