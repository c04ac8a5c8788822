#include "elastic/agent/warden.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace pliant::elastic {
namespace {

constexpr int kMostGroups = 4096;  // as many as [run] workers allows
constexpr int kMostSweeps = 200;   // of processes that start others as fast as they are killed

// Length of `bytes` from `at` to the next 0, or to `end`.
size_t text_length(const char* bytes, size_t at, size_t end) {
  size_t length = 0;
  while (at + length < end && bytes[at + length] != 0) ++length;
  return length;
}

// True when the process has exactly `entry` in its environment.
bool has_entry(pid_t pid, const char* entry, size_t length) {
  static char bytes[1 << 18];
  static char path[64];
  const auto made = fmt::format_to_n(path, sizeof(path) - 1, "/proc/{}/environ", pid);
  *made.out = 0;
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  size_t size = 0;
  ssize_t n = 0;
  while (size < sizeof(bytes) && (n = ::read(file, bytes + size, sizeof(bytes) - size)) > 0)
    size += static_cast<size_t>(n);
  ::close(file);
  for (size_t at = 0; at < size;) {
    const size_t here = text_length(bytes, at, size);
    if (here == length && std::memcmp(bytes + at, entry, length) == 0) return true;
    at += here + 1;
  }
  return false;
}

// One pass over /proc: kills what belongs to the job. Returns how many there were.
int sweep(const char* entry, size_t length) {
  alignas(8) static char bytes[1 << 15];
  const int folder = ::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return 0;
  int killed = 0;
  for (long n = 0; (n = ::syscall(SYS_getdents64, folder, bytes, sizeof(bytes))) > 0;) {
    for (long at = 0; at < n;) {
      // struct linux_dirent64: u64 inode, i64 offset, u16 length, u8 type, name
      uint16_t step = 0;
      std::memcpy(&step, bytes + at + 16, sizeof(step));
      pid_t pid = 0;
      const char* digit = bytes + at + 19;
      for (; *digit >= '0' && *digit <= '9'; ++digit) pid = pid * 10 + (*digit - '0');
      at += step;
      if (*digit != 0 || pid <= 1 || pid == ::getpid() || !has_entry(pid, entry, length)) continue;
      if (::kill(pid, SIGKILL) == 0) ++killed;
    }
  }
  ::close(folder);
  return killed;
}

// Runs in the warden process; async-signal-safe calls only, since the caller may be any program.
[[noreturn]] void keep_watch(int socket, const char* entry, size_t length) {
  ::setsid();
  ::prctl(PR_SET_NAME, "pliant-warden");
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(ignored, SIG_IGN);
  static pid_t groups[kMostGroups];
  int count = 0;
  while (true) {
    pid_t told = 0;
    const ssize_t n = ::read(socket, &told, sizeof(told));
    if (n < 0 && errno == EINTR) continue;
    if (n != static_cast<ssize_t>(sizeof(told))) break;
    int at = 0;
    while (at < count && groups[at] != (told > 0 ? told : -told)) ++at;
    if (told > 0 && at == count && count < kMostGroups) groups[count++] = told;
    if (told < 0 && at < count) groups[at] = groups[--count];
  }
  for (int i = 0; i < count; ++i) ::kill(-groups[i], SIGKILL);
  for (int pass = 0; pass < kMostSweeps && sweep(entry, length) > 0; ++pass) ::sched_yield();
  ::_exit(0);
}

}  // namespace

Result<Warden> Warden::start(const std::string& run_directory) {
  const std::string entry = "PLIANT_RUN_DIR=" + run_directory;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return failed(Status::kResourceExhausted, fmt::format("no socket for the warden: {}", std::strerror(errno)));
  }
  const pid_t pid = ::fork();
  if (pid < 0) {
    const int reason = errno;
    ::close(ends[0]), ::close(ends[1]);
    return failed(Status::kResourceExhausted,
                  fmt::format("cannot start the warden process: {}", std::strerror(reason)));
  }
  if (pid == 0) {
    ::close(ends[1]);
    // Nothing of the agent's may stay open here: a file that somebody reads to its end would never end.
    const int nothing = ::open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2; ++fd) ::dup2(nothing, fd);
    ::dup2(ends[0], 3);
    ::close_range(4, ~0U, 0);
    keep_watch(3, entry.data(), entry.size());
  }
  ::close(ends[0]);
  Warden made;
  made.pid_ = pid;
  made.socket_ = ends[1];
  return made;
}

Warden::Warden(Warden&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), pid_(std::exchange(other.pid_, -1)) {}

Warden::~Warden() {
  if (socket_ >= 0) ::close(socket_);
  if (pid_ > 0) {
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void Warden::tell(pid_t pgid) {
  while (::send(socket_, &pgid, sizeof(pgid), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}
void Warden::watch(pid_t pgid) {
  tell(pgid);
}
void Warden::forget(pid_t pgid) {
  tell(-pgid);
}

}  // namespace pliant::elastic
