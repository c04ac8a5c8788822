// fork, exec, and a socket pair that keeps messages apart.
#include "testkit/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace pliant::testkit {

namespace {

/// poll() that lives through signals of other origin; the descriptor is readable or closed when it says true.
bool readable(int descriptor, int timeout_ms) {
  const int64_t end_ns = now_ns() + int64_t{timeout_ms} * 1000000;
  for (;;) {
    const int64_t left_ms = timeout_ms < 0 ? -1 : (end_ns - now_ns() + 999999) / 1000000;
    if (timeout_ms >= 0 && left_ms < 0) return false;
    pollfd polled{descriptor, POLLIN, 0};
    const int found = ::poll(&polled, 1, static_cast<int>(left_ms));
    if (found > 0) return true;
    if (found == 0 && timeout_ms >= 0) return false;
    if (found < 0 && errno != EINTR) return true;
  }
}

[[noreturn]] void become(const std::vector<std::string>& arguments, int socket, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  std::vector<char*> words;
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  // What a plugin prints must not stand in the result of the kit.
  if (::dup2(nothing, STDIN_FILENO) < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) ::_exit(127);
  if (socket == kOwnSocket ? ::fcntl(socket, F_SETFD, 0) != 0 : ::dup2(socket, kOwnSocket) < 0) ::_exit(127);
  ::execv("/proc/self/exe", words.data());
  ::_exit(127);
}

}  // namespace

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool send_message(int socket, const std::string& text) {
  return ::send(socket, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

std::optional<std::string> receive_message(int socket, int timeout_ms, bool& gone) {
  gone = false;
  if (!readable(socket, timeout_ms)) return std::nullopt;
  std::array<char, 4096> text;
  const ssize_t got = ::recv(socket, text.data(), text.size(), 0);
  if (got <= 0) {
    gone = true;
    return std::nullopt;
  }
  return std::string(text.data(), static_cast<size_t>(got));
}

Process::Process(const std::vector<std::string>& arguments) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::runtime_error(std::string("cannot create a socket pair: ") + std::strerror(errno));
  }
  std::vector<std::string> words{"pliant-check"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(words, ends[1], parent);
  const int reason = errno;
  ::close(ends[1]);
  socket_ = ends[0];
  if (pid_ < 0) {
    ::close(socket_);
    throw std::runtime_error(std::string("cannot create a process: ") + std::strerror(reason));
  }
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      socket_(std::exchange(other.socket_, -1)),
      status_(std::exchange(other.status_, std::nullopt)) {}

Process::~Process() {
  if (socket_ >= 0) ::close(socket_);
  if (pid_ < 0 || status_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Process::send_signal(int number) const {
  if (!status_) ::kill(pid_, number);
}

int64_t Process::waited_for_cpu_ns() {
  std::error_code none;
  // Threads come and go while this looks.
  std::filesystem::directory_iterator thread("/proc/" + std::to_string(pid_) + "/task", none);
  for (; !none && thread != std::filesystem::directory_iterator(); thread.increment(none)) {
    std::ifstream in(thread->path() / "schedstat");
    int64_t ran_ns = 0;
    int64_t waited_ns = 0;
    if (in >> ran_ns >> waited_ns) waits_ns_[thread->path().filename().string()] = waited_ns;
  }
  int64_t sum_ns = 0;
  for (const auto& [name, waited_ns] : waits_ns_) sum_ns += waited_ns;
  return sum_ns;
}

std::optional<int> Process::wait_status(int timeout_ms) {
  if (status_) return status_;
  const int ended = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
  if (ended >= 0) {
    const bool in_time = readable(ended, timeout_ms);
    ::close(ended);
    if (!in_time) return std::nullopt;
  }
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  status_ = status;
  return status_;
}

std::string words_of(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return "ended with " + std::to_string(WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  return "ended by signal " + std::to_string(number) + " (" + ::strsignal(number) + ")";
}

}  // namespace pliant::testkit
