// Reads process identities from /proc and opens pidfds.
#include "common/processes/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {
namespace {

/// The first bytes of a small file; empty, with errno, when it cannot be read.
std::string read_small(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text{};
  const ssize_t got = fd ? ::read(fd.get(), text.data(), text.size()) : -1;
  return got > 0 ? std::string(text.data(), static_cast<size_t>(got)) : std::string();
}

[[noreturn]] void unknown(const char* file) {
  throw sdk::Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("cannot read ") + file +
                                                    ", by which other processes know this one: " +
                                                    std::strerror(errno) + "; close files or raise ulimit -n");
}

}  // namespace

ProcessId ProcessId::of(pid_t pid) {
  const std::string stat = read_small("/proc/" + std::to_string(pid) + "/stat");
  // The command may hold blanks and brackets; field 3 follows the last bracket, the start time is field 22.
  size_t at = stat.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return {pid, 0};
  return {pid, std::strtoull(stat.c_str() + at + 1, nullptr, 10)};
}

ProcessId ProcessId::self() {
  return of(::getpid());
}

ProcessId ProcessId::self_for_others() {
  const ProcessId own = self();
  if (own.start == 0) unknown("/proc/self/stat");
  return own;
}

UniqueFd watch_process(const ProcessId& process) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!fd) return fd;
  // Only now is the number pinned, so only now does the start time tell whose it is.
  const ProcessId found = ProcessId::of(process.pid);
  if (found == process) return fd;
  const bool unknown =
      found.start == 0 && errno != ENOENT && errno != ESRCH;  // it is not dead for want of a descriptor
  const int reason = unknown ? errno : ESRCH;
  fd.reset();
  errno = reason;
  return fd;
}

bool is_running(const ProcessId& process) {
  const UniqueFd watched = watch_process(process);
  if (!watched) return errno != ESRCH;
  pollfd asked{watched.get(), POLLIN, 0};
  return ::poll(&asked, 1, 0) != 1;
}

uint64_t pid_namespace() {
  struct stat seen {};
  return ::stat("/proc/self/ns/pid", &seen) == 0 ? seen.st_ino : 0;
}

uint64_t pid_space() {
  uint64_t hash = 14695981039346656037ULL;
  const auto mix = [&hash](uint64_t value) { hash = (hash ^ value) * 1099511628211ULL; };
  const std::string boot = read_small("/proc/sys/kernel/random/boot_id");
  if (boot.empty() && (errno == EMFILE || errno == ENFILE)) unknown("/proc/sys/kernel/random/boot_id");
  for (const char c : boot) mix(static_cast<unsigned char>(c));
  if (const uint64_t space = pid_namespace(); space != 0) mix(space);
  return hash;
}

}  // namespace pliant::accelerator
