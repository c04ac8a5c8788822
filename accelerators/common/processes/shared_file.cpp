// Asks before it takes: the system would kill where it cannot give.
#include "common/processes/shared_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/processes/memory_left.hpp"

namespace pliant::accelerator {

namespace {

/// A signal interrupts the reserving of a piece, and what of the piece was reserved is undone.
constexpr uint64_t kPiece = uint64_t{64} << 20U;

/// Returns 0 or the error.
int reserve(int fd, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t piece = std::min(kPiece, bytes - at);
    const int refused = ::posix_fallocate(fd, static_cast<off_t>(at), static_cast<off_t>(piece));
    if (refused == EINTR) continue;
    if (refused != 0) return refused;
    at += piece;
  }
  return 0;
}

}  // namespace

UniqueFd make_shared_file(const char* name, uint64_t bytes, std::string& refusal) {
  struct rlimit limit {};  // growing a file past it would raise SIGXFSZ, which kills
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur) {
    refusal = "the file size limit (ulimit -f) allows " + std::to_string(limit.rlim_cur) + " bytes";
    return {};
  }
  const uint64_t left = memory_left();
  if (bytes > left) {
    refusal = "this machine, or the control group of this process, has " + std::to_string(left >> 20U) + " MiB left";
    return {};
  }
  UniqueFd file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) {
    refusal = std::string("memfd_create says: ") + std::strerror(errno);
    return {};
  }
  const int refused = reserve(file.get(), bytes);
  if (refused != 0) {
    refusal = std::string("reserving it says: ") + std::strerror(refused);
    return {};
  }
  return file;
}

}  // namespace pliant::accelerator
