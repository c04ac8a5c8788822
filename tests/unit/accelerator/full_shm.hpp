// A process whose /dev/shm has no room for another byte.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>

namespace pliant_test {

namespace full_shm {

/// In user and mount namespaces of this process alone: a small file system on /dev/shm, and a file that fills it. "" or
/// what the system refused.
inline std::string fill_up() {
  const std::string user = std::to_string(::getuid());
  const std::string group = std::to_string(::getgid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return std::string("unshare: ") + std::strerror(errno);
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
  std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=65536") != 0) {
    return std::string("mount: ") + std::strerror(errno);
  }
  const int file = ::open("/dev/shm/full", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  const std::string page(4096, 'x');
  while (::write(file, page.data(), page.size()) == static_cast<ssize_t>(page.size())) {
  }
  const int refusal = errno;
  ::close(file);
  return refusal == ENOSPC ? "" : std::string("filling it: ") + std::strerror(refusal);
}

}  // namespace full_shm

/// What `body` returns in such a process. Where the system has no namespaces for its users, "skipped: " and why.
inline std::string with_full_shm(const std::function<std::string()>& body) {
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) return "no pipe";
  std::cout.flush();  // or the child would print it again
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(100);
    ::close(ends[0]);
    std::string text = full_shm::fill_up();
    try {
      text = text.empty() ? body() : "skipped: " + text;
    } catch (const std::exception& thrown) {
      text = std::string("threw: ") + thrown.what();
    }
    const bool told = ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(told ? 0 : 9);
  }
  ::close(ends[1]);
  std::string text;
  char part[512];
  for (ssize_t got = 0; (got = ::read(ends[0], part, sizeof(part))) > 0;) text.append(part, static_cast<size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? text : text + " [wait status " + std::to_string(status) + "]";
}

inline bool is_skipped(const std::string& text) {
  return text.rfind("skipped: ", 0) == 0;
}

}  // namespace pliant_test
