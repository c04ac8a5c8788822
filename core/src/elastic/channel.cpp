#include "elastic/channel.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace pliant::elastic {
namespace {

// What a worker exits with when its agent is gone: the code of a process that was told to go away by SIGKILL.
constexpr int kAgentGone = 137;

}  // namespace

Channel::Channel(int fd, std::function<void(int64_t)> on_abort) : fd_(fd), on_abort_(std::move(on_abort)) {
  reader_ = std::thread([this] { read_all(); });
}

Channel::~Channel() {
  closing_.store(true);
  ::shutdown(fd_, SHUT_RD);  // wakes the reader; what was sent still reaches the agent
  reader_.join();
  ::close(fd_);
}

void Channel::send(const FromWorker& message) {
  const std::string line = to_line(message) + "\n";
  const std::lock_guard lock(send_mutex_);
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::send(fd_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<size_t>(n);
    } else if (n < 0 && errno != EINTR) {
      ::_exit(kAgentGone);
    }
  }
}

ToWorker Channel::receive() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return !inbox_.empty(); });
  ToWorker message = std::move(inbox_.front());
  inbox_.pop_front();
  return message;
}

std::optional<ToWorker> Channel::poll() {
  const std::lock_guard lock(mutex_);
  if (inbox_.empty()) return std::nullopt;
  ToWorker message = std::move(inbox_.front());
  inbox_.pop_front();
  return message;
}

void Channel::read_all() {
  std::string pending;
  char bytes[4096];
  while (true) {
    const ssize_t n = ::recv(fd_, bytes, sizeof(bytes), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    pending.append(bytes, static_cast<size_t>(n));
    size_t end = 0;
    while ((end = pending.find('\n')) != std::string::npos) {
      Result<ToWorker> message = parse_to_worker(std::string_view(pending).substr(0, end));
      pending.erase(0, end + 1);
      if (!message) ::_exit(kAgentGone);  // an agent that speaks nonsense is no agent
      const auto* abort = std::get_if<Abort>(&*message);
      const int64_t aborted = abort != nullptr ? abort->generation : -1;
      {
        const std::lock_guard lock(mutex_);
        inbox_.push_back(std::move(*message));
      }
      arrived_.notify_one();
      if (aborted >= 0) on_abort_(aborted);
    }
    if (pending.size() > kLongestMessage) ::_exit(kAgentGone);
  }
  // Ended by ~Channel, or the agent is gone.
  if (closing_.load()) return;
  ::_exit(kAgentGone);
}

}  // namespace pliant::elastic
