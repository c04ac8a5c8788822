#include "elastic/agent/worker_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "base/durable_file.hpp"
#include "base/environment.hpp"
#include "elastic/channel.hpp"
#include "elastic/message.hpp"

extern char** environ;

namespace pliant::elastic {
namespace {

namespace fs = std::filesystem;

constexpr int kExecPollMilliseconds = 100;
constexpr int kUnknownExitCode = 255;
constexpr size_t kMostInOneTurn = size_t{1} << 20;  // bytes from one worker, before others have their turn
constexpr size_t kMostUnread = size_t{1} << 20;     // bytes for a worker that does not read

// Everything the child needs, made before fork: after it only async-signal-safe calls are allowed.
struct Prepared {
  std::vector<std::string> texts;
  std::vector<char*> argv;
  std::vector<char*> envp;
};

Prepared prepare(const LaunchOrder& order, int worker_socket) {
  Prepared made;
  std::set<std::string> ours{kAgentSocketVariable};
  std::vector<std::string> environment{fmt::format("{}={}", kAgentSocketVariable, text_of_socket(worker_socket))};
  for (const auto& [name, value] : order.environment) {
    ours.insert(name);
    environment.push_back(name + "=" + value);
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    if (!ours.contains(text.substr(0, text.find('=')))) environment.push_back(text);
  }
  made.texts = order.command;
  const size_t arguments = made.texts.size();
  made.texts.insert(made.texts.end(), environment.begin(), environment.end());
  for (size_t i = 0; i < made.texts.size(); ++i)
    (i < arguments ? made.argv : made.envp).push_back(made.texts[i].data());
  made.argv.push_back(nullptr);
  made.envp.push_back(nullptr);
  return made;
}

[[noreturn]] void become_worker(const Prepared& prepared, const LaunchOrder& order, pid_t agent, int log, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != agent) ::_exit(137);  // the agent died before the line above
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) ::signal(ignored, SIG_DFL);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing > STDERR_FILENO) {
    ::dup2(nothing, STDIN_FILENO);
    ::close(nothing);
  }
  int failure = 0;
  if (!order.working_dir.empty() && ::chdir(order.working_dir.c_str()) != 0) failure = errno;
  if (failure == 0) {
    ::execve(prepared.argv[0], prepared.argv.data(), prepared.envp.data());
    failure = errno;
  }
  const ssize_t told = ::write(report, &failure, sizeof(failure));
  ::_exit(told == static_cast<ssize_t>(sizeof(failure)) ? 126 : 127);
}

bool process_is_stopped(pid_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(stat, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return false;
  return text[name_end + 2] == 'T' || text[name_end + 2] == 't';
}

// A pipe in its place is refused: the agent would wait for its reader.
Result<FileDescriptor> open_log(const fs::path& file) {
  Result<FileDescriptor> log = open_file(file, O_WRONLY | O_CREAT | O_APPEND, "start a worker with the log");
  if (!log && log.error().status() == Status::kNotFound) {  // the folder of logs alone may have been removed
    std::error_code ignored;
    fs::create_directory(file.parent_path(), ignored);
    log = open_file(file, O_WRONLY | O_CREAT | O_APPEND, "start a worker with the log");
  }
  if (log) ::fcntl(log->get(), F_SETFL, O_APPEND);
  return log;
}

tl::unexpected<Error> cannot_start(const LaunchOrder& order, const char* what, int reason) {
  return failed(Status::kFailedPrecondition,
                fmt::format("cannot start the worker {}: {}: {}", order.command.front(), what, std::strerror(reason)),
                Origin::kInput);
}

}  // namespace

Result<std::string> find_program(const std::string& name, const fs::path& folder) {
  std::error_code error;
  const auto runs = [](const fs::path& file) { return ::access(file.c_str(), X_OK) == 0 && fs::is_regular_file(file); };
  if (name.find('/') != std::string::npos) {
    const fs::path file = fs::absolute(folder / name).lexically_normal();
    if (runs(file)) return file.string();
    return failed(Status::kNotFound,
                  fmt::format("[run] command: {} is not an executable program: {}", name,
                              fs::exists(file, error) ? file.string() + " is none" : "there is no " + file.string()),
                  Origin::kInput);
  }
  const fs::path beside = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (!error && runs(beside / name)) return (beside / name).string();
  const char* path = environment_variable("PATH");
  std::string rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const fs::path found = fs::path(rest.substr(0, colon)) / name;
    if (colon != 0 && runs(found)) return fs::absolute(found).string();  // a worker may run elsewhere
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  const fs::path here = fs::absolute(folder / name).lexically_normal();
  return failed(Status::kNotFound,
                fmt::format("[run] command: '{}' is neither beside this program ({}) nor in PATH{}", name,
                            beside.string(), runs(here) ? fmt::format("; write ./{} for {}", name, here.string()) : ""),
                Origin::kInput);
}

Result<WorkerProcess> WorkerProcess::start(const LaunchOrder& order) {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return cannot_start(order, "socket", errno);
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) {
    const int reason = errno;
    ::close(sockets[0]), ::close(sockets[1]);
    return cannot_start(order, "pipe", reason);
  }
  Result<FileDescriptor> log = open_log(order.log);
  if (!log) {
    for (const int fd : {sockets[0], sockets[1], report[0], report[1]}) ::close(fd);
    return failed(std::move(log));
  }
  ::fcntl(sockets[1], F_SETFD, 0);  // the worker's end stays open across exec
  const Prepared prepared = prepare(order, sockets[1]);
  const pid_t agent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become_worker(prepared, order, agent, log->get(), report[1]);
  const int fork_failure = pid < 0 ? errno : 0;
  ::close(sockets[1]), ::close(report[1]);
  int exec_failure = 0;
  ssize_t told = -1;
  // Stopped before exec it would keep the agent waiting; afterwards a stopped worker is the group's business.
  pollfd reported{report[0], POLLIN, 0};
  while (pid > 0 && ::poll(&reported, 1, kExecPollMilliseconds) <= 0) {
    if (process_is_stopped(pid)) ::kill(pid, SIGCONT);
  }
  while (pid > 0 && (told = ::read(report[0], &exec_failure, sizeof(exec_failure))) < 0 && errno == EINTR) {
  }
  ::close(report[0]);
  if (told != 0) {
    ::close(sockets[0]);
    if (pid > 0) {
      ::kill(pid, SIGKILL);
      while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    return cannot_start(order, "exec", fork_failure != 0 ? fork_failure : exec_failure);
  }
  ::setpgid(pid, pid);
  ::fcntl(sockets[0], F_SETFL, O_NONBLOCK);
  WorkerProcess made;
  made.pid_ = pid;
  made.socket_ = sockets[0];
  made.pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (made.pidfd_ < 0) return cannot_start(order, "pidfd_open (Linux 5.3 or newer is needed)", errno);
  return made;
}

WorkerProcess::WorkerProcess(Caller caller)
    : pid_(caller.process), pidfd_(caller.pidfd.release()), socket_(caller.socket.release()), is_child_(false) {
  ::fcntl(socket_, F_SETFL, O_NONBLOCK);
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      socket_(std::exchange(other.socket_, -1)),
      reaped_(std::exchange(other.reaped_, true)),
      is_child_(other.is_child_),
      outbox_(std::move(other.outbox_)),
      inbox_(std::move(other.inbox_)) {}

WorkerProcess::~WorkerProcess() {
  if (pid_ > 0 && !reaped_) {
    signal_group(SIGKILL);
    signal_alone(SIGKILL);
    reap();
  }
  if (socket_ >= 0) ::close(socket_);
  if (pidfd_ >= 0) ::close(pidfd_);
}

bool WorkerProcess::is_stopped() const {
  return process_is_stopped(pid_);
}

Result<> WorkerProcess::send(const std::string& line) {
  if (outbox_.size() > kMostUnread) {
    outbox_.clear();
    return failed(Status::kResourceExhausted,
                  fmt::format("it has left {} bytes of the agent's messages unread", kMostUnread));
  }
  outbox_ += line;
  outbox_ += '\n';
  flush();
  return {};
}

bool WorkerProcess::flush() {
  while (!outbox_.empty()) {
    const ssize_t n = ::send(socket_, outbox_.data(), outbox_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      outbox_.erase(0, static_cast<size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno != EINTR) {
      outbox_.clear();  // it is dead or has closed its end; its end is noticed elsewhere
    }
  }
  return true;
}

Result<std::vector<std::string>> WorkerProcess::receive(bool& closed) {
  char bytes[16384];
  closed = false;
  for (size_t got = 0; got < kMostInOneTurn;) {
    const ssize_t n = ::recv(socket_, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n > 0) {
      inbox_.append(bytes, static_cast<size_t>(n));
      got += static_cast<size_t>(n);
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)) {
      closed = true;
      break;
    } else if (errno != EINTR) {
      break;
    }
  }
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end = 0; (end = inbox_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(inbox_.substr(begin, end - begin));
  }
  inbox_.erase(0, begin);
  if (inbox_.size() > kLongestMessage) {
    inbox_ = {};
    return failed(Status::kDataLoss, fmt::format("it wrote more than {} bytes to the agent's socket (PLIANT_AGENT_FD) "
                                                 "without an end of line; only the embedding API may use that socket",
                                                 kLongestMessage));
  }
  return lines;
}

void WorkerProcess::signal_group(int signal) const {
  if (!is_child_) return signal_alone(signal);
  if (pid_ > 0 && !reaped_) ::kill(-pid_, signal);
}

void WorkerProcess::signal_alone(int signal) const {
  if (pid_ > 0 && !reaped_) ::syscall(SYS_pidfd_send_signal, pidfd_, signal, nullptr, 0);
}

ExitStatus WorkerProcess::reap() {
  if (!is_child_) {
    reaped_ = true;
    return {.signalled = false, .code = kUnknownExitCode, .is_known = false};
  }
  siginfo_t ended{};
  // The zombie keeps its number, so the group is still the worker's own when what it left behind is killed.
  while (::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  signal_group(SIGKILL);
  int status = 0;
  pid_t waited;
  while ((waited = ::waitpid(pid_, &status, 0)) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  // Somebody else of this program has waited for it: how it ended is not known, so it does not count as well.
  if (waited < 0) return {false, kUnknownExitCode};
  if (WIFSIGNALED(status)) return {true, WTERMSIG(status)};
  return {false, WEXITSTATUS(status)};
}

}  // namespace pliant::elastic
