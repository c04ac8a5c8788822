#include "elastic/channel.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <utility>

namespace pliant::elastic {
namespace {

/// The socket's own number; 0: `fd` is none.
uint64_t number_of_socket(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) return 0;
  return status.st_ino;
}

}  // namespace

std::string text_of_socket(int fd) {
  return fmt::format("{}:{}", fd, number_of_socket(fd));
}

FileDescriptor take_socket(std::string_view text, bool same_protocol) {
  int fd = -1;
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, fd);
  bool whole = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
  if (whole) {
    const auto second = std::from_chars(first.ptr + 1, end, number);
    whole = second.ec == std::errc() && second.ptr == end;
  }
  if (!same_protocol && first.ec == std::errc() && first.ptr == end) {
    number = number_of_socket(fd);
    whole = true;
  }
  const int flags = whole ? ::fcntl(fd, F_GETFD) : -1;
  if (flags < 0 || (flags & FD_CLOEXEC) != 0 || number == 0 || number_of_socket(fd) != number) {
    throw Error(Status::kFailedPrecondition,
                "the connection to the agent is not open in this process, or was taken by an earlier Session::attach: "
                "a worker attaches once, and programs that it starts are not workers",
                Origin::kInput);
  }
  ::fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
  return FileDescriptor(fd);
}

Channel::Channel(FileDescriptor fd, std::function<void(int64_t)> on_abort, std::string resume)
    : fd_(std::move(fd)), on_abort_(std::move(on_abort)), resume_(std::move(resume)) {
  reader_ = std::thread([this] { read_all(); });
}

Channel::~Channel() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  ::shutdown(fd_.get(), SHUT_RD);  // wakes the reader; what was sent still reaches the agent
  reader_.join();
}

void Channel::send(const FromWorker& message) {
  const std::string line = to_line(message) + "\n";
  const std::lock_guard lock(send_mutex_);
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::send(fd_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // the reader sees the end, too
    sent += static_cast<size_t>(n);
  }
}

ToWorker Channel::receive() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return !inbox_.empty() || gone_; });
  if (inbox_.empty()) throw_gone();
  ToWorker message = std::move(inbox_.front());
  inbox_.pop_front();
  return message;
}

void Channel::require_agent() {
  const std::lock_guard lock(mutex_);
  if (gone_) throw_gone();
}

void Channel::throw_gone() const {
  throw Error(Status::kPeerLost,
              fmt::format("{}; `{}` continues from the newest snapshot, or starts from the beginning if there is none",
                          *gone_, resume_));
}

void Channel::lose_agent(std::string why) {
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    gone_ = std::move(why);
  }
  arrived_.notify_all();
  ::shutdown(fd_.get(), SHUT_RDWR);  // an agent that lives sees that this worker has left
  on_abort_(kEveryGeneration);
}

void Channel::read_all() {
  std::string pending;
  char bytes[4096];
  while (true) {
    const ssize_t n = ::recv(fd_.get(), bytes, sizeof(bytes), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return lose_agent("the agent of this job is gone");
    pending.append(bytes, static_cast<size_t>(n));
    size_t end = 0;
    while ((end = pending.find('\n')) != std::string::npos) {
      Result<ToWorker> message = parse_to_worker(std::string_view(pending).substr(0, end));
      pending.erase(0, end + 1);
      if (!message) return lose_agent("leaving the agent of this job: " + message.error().message());
      const auto* abort = std::get_if<Abort>(&*message);
      const int64_t aborted = abort != nullptr ? abort->generation : -1;
      {
        const std::lock_guard lock(mutex_);
        inbox_.push_back(std::move(*message));
      }
      arrived_.notify_one();
      if (aborted >= 0) on_abort_(aborted);
    }
    if (pending.size() > kLongestMessage) return lose_agent("leaving the agent of this job: its message has no end");
  }
}

}  // namespace pliant::elastic
