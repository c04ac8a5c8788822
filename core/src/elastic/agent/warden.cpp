#include "elastic/agent/warden.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

namespace pliant::elastic {
namespace {

constexpr int kMostGroups = 4096;  // as many as [run] workers allows
constexpr int kMostSweeps = 200;   // of processes that start others as fast as they are killed
constexpr int kDeathMs = 1000;     // a process that SIGKILL does not end sooner is the kernel's affair

// What the agent says: a group is the job's (> 0), or is so no longer (< 0).
struct Told {
  pid_t pgid = 0;
  uint64_t started = 0;
};

struct Look {
  char state = 0;        // 0: there is no such process
  uint64_t started = 0;  // in clock ticks since boot
};

// Of /proc/PID/stat. Async-signal-safe.
Look look_at(pid_t pid) {
  char text[1024];
  *fmt::format_to_n(text, sizeof(text) - 1, "/proc/{}/stat", pid).out = 0;
  const int file = ::open(text, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t size = ::read(file, text, sizeof(text) - 1);
  ::close(file);
  if (size <= 0) return {};
  text[size] = 0;
  const char* at = std::strrchr(text, ')');  // the name before it may hold anything
  if (at == nullptr || at + 2 >= text + size) return {};
  Look found{at[2], 0};
  constexpr int kFromNameToStart = 20;
  for (int fields = 0; fields < kFromNameToStart && at != nullptr; ++fields) at = std::strchr(at + 1, ' ');
  if (at == nullptr) return {};
  for (++at; *at >= '0' && *at <= '9'; ++at) found.started = found.started * 10 + static_cast<uint64_t>(*at - '0');
  return found;
}

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

// Kills `group` unless its number has gone to a process that the job did not start.
void kill_group(const Told& group) {
  const Look leader = look_at(group.pgid);
  if (leader.state == 0 || leader.started == group.started) ::kill(-group.pgid, SIGKILL);
}

// Waits until the workers themselves have ended, or have had their time.
void give_grace(const Told* groups, int count) {
  constexpr int kPollMs = 5;
  for (int waited = 0; waited < Warden::kGraceMs; waited += kPollMs) {
    const auto lives = [](const Told& group) {
      const Look leader = look_at(group.pgid);
      return leader.started == group.started && leader.state != 0 && leader.state != 'Z' && leader.state != 'X';
    };
    if (std::none_of(groups, groups + count, lives)) return;
    ::poll(nullptr, 0, kPollMs);
  }
}

void kill_whole_job(const char* entry, size_t length) {
  for (int pass = 0; pass < kMostSweeps && sweep(entry, length) > 0; ++pass) ::sched_yield();
}

// Runs in the warden process; async-signal-safe calls only, since the caller may be any program.
[[noreturn]] void keep_watch(int socket, const std::map<pid_t, uint64_t>& known, const char* entry, size_t length) {
  ::setsid();
  ::prctl(PR_SET_NAME, "pliant-warden");
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(ignored, SIG_IGN);
  static Told groups[kMostGroups];
  int count = 0;
  for (const auto& [pgid, started] : known) {
    if (count < kMostGroups) groups[count++] = {pgid, started};
  }
  while (true) {
    Told told;
    const ssize_t n = ::read(socket, &told, sizeof(told));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != ECONNRESET) ::_exit(1);  // this says nothing of the agent, who starts another
    if (n != static_cast<ssize_t>(sizeof(told))) break;
    int at = 0;
    while (at < count && groups[at].pgid != (told.pgid > 0 ? told.pgid : -told.pgid)) ++at;
    if (told.pgid > 0 && at == count && count < kMostGroups) groups[count++] = told;
    if (told.pgid < 0 && at < count) groups[at] = groups[--count];
  }
  give_grace(groups, count);
  for (int i = 0; i < count; ++i) kill_group(groups[i]);
  kill_whole_job(entry, length);
  ::_exit(0);
}

std::string random_digits() {
  uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != static_cast<ssize_t>(sizeof(number))) number = std::random_device{}();
  return fmt::format("{:016x}", number);
}

}  // namespace

Result<Warden> Warden::start(const std::string& run_id) {
  Warden made(fmt::format("{}/{}", run_id, random_digits()));
  if (auto launched = made.launch(); !launched) return failed(std::move(launched));
  return made;
}

Result<> Warden::launch() {
  const std::string entry = fmt::format("{}={}", kVariable, incarnation_);
  int ends[2];
  // Packets: a message arrives whole or, where the socket is full, not at all.
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return failed(Status::kResourceExhausted,
                  fmt::format("cannot create a socket for the warden: {}", std::strerror(errno)));
  }
  const pid_t pid = ::fork();
  if (pid == 0) {
    // Nothing of the agent's may stay open here: a file that somebody reads to its end would never end. No descriptor
    // is taken before there are free ones, since the agent may have run out of them.
    constexpr int kSocket = 3;
    if (ends[0] != kSocket && ::dup2(ends[0], kSocket) < 0) ::_exit(1);
    ::close_range(kSocket + 1, ~0U, 0);
    const int nothing = ::open("/dev/null", O_RDWR);
    for (int fd = 0; fd < kSocket; ++fd) nothing < 0 ? ::close(fd) : ::dup2(nothing, fd);
    keep_watch(kSocket, groups_, entry.data(), entry.size());
  }
  const int reason = errno;
  ::close(ends[0]);
  if (pid < 0) {
    ::close(ends[1]);
    return failed(Status::kResourceExhausted,
                  fmt::format("cannot start the warden process: {}", std::strerror(reason)));
  }
  pid_ = pid;
  socket_ = ends[1];
  unheard_ = false;
  pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (pidfd_ < 0) {
    const int why = errno;
    dismiss();
    return failed(Status::kResourceExhausted, fmt::format("cannot open a pidfd of the warden: {}", std::strerror(why)));
  }
  return {};
}

Warden::Warden(Warden&& other) noexcept
    : incarnation_(std::move(other.incarnation_)),
      groups_(std::move(other.groups_)),
      socket_(std::exchange(other.socket_, -1)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      pid_(std::exchange(other.pid_, -1)),
      unheard_(other.unheard_) {}

Warden::~Warden() {
  if (incarnation_.empty()) return;  // moved from
  // Not left to the warden, who may be late: it ends when there is nothing more to do.
  for (const auto& [pgid, started] : groups_) kill_group({pgid, started});
  const std::string entry = fmt::format("{}={}", kVariable, incarnation_);
  kill_whole_job(entry.data(), entry.size());
  dismiss();
}

// SIGKILL also ends one that is stopped; and it comes before the socket's end, upon which a warden kills the job.
void Warden::dismiss() {
  if (pid_ > 0) {
    if (pidfd_ >= 0) {
      ::syscall(SYS_pidfd_send_signal, pidfd_, SIGKILL, nullptr, 0);
    } else {
      ::kill(pid_, SIGKILL);
    }
    pollfd end{pidfd_, POLLIN, 0};
    while (pidfd_ >= 0 && ::poll(&end, 1, kDeathMs) < 0 && errno == EINTR) {
    }
    ::waitpid(pid_, nullptr, pidfd_ >= 0 ? WNOHANG : 0);
  }
  for (int* fd : {&socket_, &pidfd_}) {
    if (*fd >= 0) ::close(std::exchange(*fd, -1));
  }
  pid_ = -1;
}

Result<bool> Warden::tend() {
  pollfd end{pidfd_, POLLIN, 0};
  const bool ended = pidfd_ < 0 || ::poll(&end, 1, 0) > 0;
  const char state = ended ? 'X' : look_at(pid_).state;
  if (!ended && !unheard_ && state != 'T' && state != 't') return false;
  dismiss();
  if (auto launched = launch(); !launched) return failed(std::move(launched));
  return true;
}

void Warden::tell(pid_t pgid, uint64_t started) {
  const Told told{pgid, started};
  ssize_t sent = 0;
  while ((sent = ::send(socket_, &told, sizeof(told), MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 && errno == EINTR) {
  }
  if (sent < 0) unheard_ = true;
}
void Warden::watch(pid_t pgid) {
  groups_[pgid] = look_at(pgid).started;
  tell(pgid, groups_[pgid]);
}
void Warden::forget(pid_t pgid) {
  groups_.erase(pgid);
  tell(-pgid, 0);
}

}  // namespace pliant::elastic
