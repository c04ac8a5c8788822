// A process in namespaces of its own, where a test may fill file systems and cut networks that are nobody else's.
#pragma once

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>

namespace pliant_test {

/// Why a test cannot be made on this system.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// To root of a new user namespace, and to new ones of `kinds` (CLONE_NEW...). Throws Refused.
inline void enter_own_namespaces(int kinds) {
  const std::string user = std::to_string(::getuid());
  const std::string group = std::to_string(::getgid());
  if (::unshare(CLONE_NEWUSER | kinds) != 0) throw Refused(std::string("unshare: ") + std::strerror(errno));
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
  std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
}

/// What `body` returns in a process of its own; "skipped: " and why when it throws Refused.
inline std::string in_a_process(const std::function<std::string()>& body) {
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) return "no pipe";
  std::cout.flush();  // or the child would print it again
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(100);
    ::close(ends[0]);
    std::string text;
    try {
      text = body();
    } catch (const Refused& refused) {
      text = std::string("skipped: ") + refused.what();
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

/// Checks that `text`, of in_a_process, is empty, or says that the test was skipped.
inline void check_unless_skipped(const std::string& text) {
  if (text.rfind("skipped: ", 0) == 0) {
    MESSAGE(text);
    return;
  }
  CHECK(text == "");
}

}  // namespace pliant_test
