// What a driver opened is of the process that opened it.
#pragma once

#include <sys/types.h>

namespace pliant::accelerator {

/// Throws PLIANT_FAILED_PRECONDITION in a process other than `owner`. `driver` is what that one opened.
void require_process(pid_t owner, const char* driver);

}  // namespace pliant::accelerator
