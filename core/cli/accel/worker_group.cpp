// Starts, questions and ends the processes of the group. A question and an answer are one line of JSON each.
#include "accel/worker_group.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <system_error>

#include "stop_signals.hpp"

namespace pliant::cli {

namespace {

using Json = WorkerGroup::Json;
using Clock = std::chrono::steady_clock;

/// How long the others may take to say what they think after the first rank has failed.
constexpr std::chrono::milliseconds kLastWords{2000};
/// Nothing can be the cause of this.
constexpr int kDeath = 3;

bool write_all(int socket, const std::string& line) {
  for (size_t at = 0; at < line.size();) {
    const ssize_t sent = ::send(socket, line.data() + at, line.size() - at, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += static_cast<size_t>(sent);
  }
  return true;
}

/// The next line, without its end; nullopt when the other side has closed.
std::optional<std::string> read_line(int socket, std::string& unread) {
  for (;;) {
    const size_t end = unread.find('\n');
    if (end != std::string::npos) {
      std::string line = unread.substr(0, end);
      unread.erase(0, end + 1);
      return line;
    }
    char part[4096];
    const ssize_t got = ::recv(socket, part, sizeof(part), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    unread.append(part, static_cast<size_t>(got));
  }
}

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

Json failure(const Error& error) {
  return {{"failed", error.message()},
          {"status", static_cast<int32_t>(error.status())},
          {"origin", static_cast<int>(error.origin())},
          {"rank", error.rank()},
          {"device", error.device()}};
}

/// The whole life of a child.
void serve(int socket, int32_t rank, const std::function<WorkerGroup::Answer(int32_t)>& make) {
  Json last;
  try {
    const WorkerGroup::Answer answer = make(rank);
    std::string unread;
    while (const auto line = read_line(socket, unread)) {
      if (!write_all(socket, line_of(answer(Json::parse(*line))))) return;
    }
    return;
  } catch (const Error& error) {
    last = failure(error);
  } catch (const std::exception& error) {
    last = failure(Error(Status::kInternal, error.what()));
  }
  static_cast<void>(write_all(socket, line_of(last)));
}

/// The signals that StopSignals notes, blocked while it lives: they come in ppoll or not at all.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t stop;
    sigemptyset(&stop);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&stop, number);
    ::sigprocmask(SIG_BLOCK, &stop, &before_);
  }
  ~BlockedSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  [[nodiscard]] const sigset_t& before() const { return before_; }

 private:
  sigset_t before_{};
};

}  // namespace

WorkerGroup::WorkerGroup(int32_t ranks, const std::function<Answer(int32_t)>& make)
    : WorkerGroup() {  // so that a throw ends the children
  const pid_t parent = ::getpid();
  for (int32_t rank = 0; rank < ranks; ++rank) {
    int ends[2] = {-1, -1};
    const bool paired = ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0;
    const pid_t child = paired ? ::fork() : -1;
    if (child < 0) {
      const int reason = errno;
      for (const int end : ends) ::close(end);
      throw Error(Status::kResourceExhausted,
                  fmt::format("cannot start a process for rank {} of {}: {}; free memory or lower --ranks", rank, ranks,
                              std::generic_category().message(reason)));
    }
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      // Ctrl-C reaches the whole foreground: the parent decides.
      for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, number == SIGTERM ? SIG_DFL : SIG_IGN);
      for (const Member& member : members_) ::close(member.socket);
      ::close(ends[0]);
      serve(ends[1], rank, make);
      ::_exit(0);
    }
    ::close(ends[1]);
    Member& member = members_.emplace_back();
    member.pid = child;
    member.socket = ends[0];
  }
}

WorkerGroup::~WorkerGroup() {
  for (const Member& member : members_) {
    if (!member.reaped) ::kill(member.pid, SIGKILL);
  }
  for (const Member& member : members_) {
    ::close(member.socket);
    while (!member.reaped && ::waitpid(member.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

std::vector<Json> WorkerGroup::ask(const Json& question, const std::string& task) {
  std::vector<int32_t> all;
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    // A rank that died before the question is found out by the missing answer.
    static_cast<void>(write_all(members_[static_cast<size_t>(rank)].socket, line_of(question)));
    all.push_back(rank);
  }
  return gather(all, task);
}

Json WorkerGroup::ask_one(int32_t rank, const Json& question, const std::string& task) {
  static_cast<void>(write_all(members_[static_cast<size_t>(rank)].socket, line_of(question)));
  return std::move(gather({rank}, task).front());
}

void WorkerGroup::wait_for_words(int timeout_ms) {
  std::vector<pollfd> polled;
  for (const Member& member : members_) polled.push_back({member.ended ? -1 : member.socket, POLLIN, 0});
  const BlockedSignals blocked;
  StopSignals::check();
  const timespec limit{timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
  if (::ppoll(polled.data(), polled.size(), timeout_ms < 0 ? nullptr : &limit, &blocked.before()) <= 0) {
    StopSignals::check();
    return;
  }
  for (size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents == 0) continue;
    char part[65536];
    const ssize_t got = ::recv(members_[i].socket, part, sizeof(part), 0);
    if (got > 0) members_[i].unread.append(part, static_cast<size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) members_[i].ended = true;
  }
}

std::vector<Json> WorkerGroup::gather(const std::vector<int32_t>& asked, const std::string& task) {
  std::vector<Json> answers(asked.size());
  std::vector<bool> over(members_.size(), true);
  for (const int32_t rank : asked) over[static_cast<size_t>(rank)] = false;
  std::optional<Casualty> cause;
  Clock::time_point last_words{};
  while (std::find(over.begin(), over.end(), false) != over.end()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(last_words - Clock::now()).count();
    if (cause && (left <= 0 || cause->weight == kDeath)) break;
    wait_for_words(cause ? static_cast<int>(left) : -1);
    for (int32_t rank = 0; rank < ranks(); ++rank) {
      Member& member = members_[static_cast<size_t>(rank)];
      const size_t end = member.unread.find('\n');
      if (over[static_cast<size_t>(rank)] || (end == std::string::npos && !member.ended)) continue;
      over[static_cast<size_t>(rank)] = true;
      const Json words = end == std::string::npos ? Json() : Json::parse(member.unread.substr(0, end));
      if (end != std::string::npos) member.unread.erase(0, end + 1);
      if (!words.is_null() && !words.contains("failed")) {
        const auto place = std::find(asked.begin(), asked.end(), rank) - asked.begin();
        answers[static_cast<size_t>(place)] = words;
        continue;
      }
      const Casualty fallen = words.is_null() ? death(rank, task) : casualty(rank, words, task);
      if (!cause) last_words = Clock::now() + kLastWords;
      if (!cause || fallen.weight > cause->weight) cause = fallen;
    }
  }
  if (cause) throw Error(cause->error);
  return answers;
}

std::string WorkerGroup::name_of(int32_t rank) const {
  return ranks() == 1 ? "the measuring process" : fmt::format("rank {} of {}", rank, ranks());
}

WorkerGroup::Casualty WorkerGroup::casualty(int32_t rank, const Json& words, const std::string& task) const {
  const auto status = static_cast<Status>(words.at("status").get<int32_t>());
  const bool echo = status == Status::kPeerLost || status == Status::kAborted;
  return {echo ? 1 : 2,
          Error(status, fmt::format("{}, {}: {}", task, name_of(rank), words.at("failed").get<std::string>()),
                static_cast<Origin>(words.at("origin").get<int>()))
              .about_rank(words.at("rank").get<int32_t>())
              .about_device(words.at("device").get<int32_t>())};
}

WorkerGroup::Casualty WorkerGroup::death(int32_t rank, const std::string& task) {
  Member& member = members_[static_cast<size_t>(rank)];
  int status = 0;
  while (::waitpid(member.pid, &status, 0) < 0 && errno == EINTR) {
  }
  member.reaped = true;
  std::string end = fmt::format("ended with exit code {}", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  if (WIFSIGNALED(status)) {
    end = fmt::format("was killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  }
  return {kDeath, Error(Status::kPeerLost, fmt::format("{}, {} (pid {}) {}", task, name_of(rank), member.pid, end))
                      .about_rank(rank)};
}

}  // namespace pliant::cli
