// A file that grows past its limit raises SIGXFSZ, which kills; so the doubles ask first.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace soft_cuda {

/// Files of this process may have so many bytes.
inline bool may_write(uint64_t bytes) {
  struct rlimit limit {};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes;
}

}  // namespace soft_cuda
