#include "elastic/agent/warden.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace pliant::elastic {
namespace {

constexpr int kMostGroups = 4096;  // as many as [run] workers allows

// Runs in the warden process; async-signal-safe calls only, since the caller may be any program.
[[noreturn]] void keep_watch(int socket) {
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
  ::_exit(0);
}

}  // namespace

Result<Warden> Warden::start() {
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
    keep_watch(3);
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
