// A process whose /dev/shm has no room for another byte.
#pragma once

#include <fcntl.h>
#include <sys/mount.h>

#include "own_namespaces.hpp"

namespace pliant_test {

/// In namespaces of this process alone: a small file system on /dev/shm, and a file that fills it. Throws Refused.
inline void fill_shm() {
  enter_own_namespaces(CLONE_NEWNS);
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=65536") != 0) {
    throw Refused(std::string("mount: ") + std::strerror(errno));
  }
  const int file = ::open("/dev/shm/full", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  const std::string page(4096, 'x');
  while (::write(file, page.data(), page.size()) == static_cast<ssize_t>(page.size())) {
  }
  const int refusal = errno;
  ::close(file);
  if (refusal != ENOSPC) throw Refused(std::string("filling it: ") + std::strerror(refusal));
}

/// What `body` returns in such a process. Where the system has no namespaces for its users, "skipped: " and why.
inline std::string with_full_shm(const std::function<std::string()>& body) {
  return in_a_process([&] {
    fill_shm();
    return body();
  });
}

}  // namespace pliant_test
