// JobStop, and who hears it; the signals of a program that gave them to a job.
#include "elastic/agent/stop.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/inside.hpp"

namespace pliant {

JobStop::JobStop()
    : state_(std::make_shared<const State>(State{FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))})) {
  if (state_->calls.get() < 0) {
    throw Error(Status::kResourceExhausted,
                fmt::format("cannot create a descriptor to stop a job with: {}", std::strerror(errno)));
  }
}

void JobStop::request() const noexcept {
  const int kept = errno;  // of the code that a signal handler interrupts
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(state_->calls.get(), &one, sizeof(one));
  errno = kept;
}

namespace elastic {

void StopSignals::take(std::function<void(int)> heard) {
  heard_ = std::move(heard);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction had {};
    if (::sigaction(number, nullptr, &had) != 0) continue;
    if (number == SIGHUP && had.sa_handler == SIG_IGN) continue;
    before_.emplace_back(number, had);
    signals_.add(number);
  }
  wait();
}

void StopSignals::wait() {
  signals_.async_wait([this](const boost::system::error_code& error, int number) {
    if (error) return;
    heard_(number);
    wait();
  });
}

StopSignals::~StopSignals() {
  if (before_.empty()) return;
  // The signal set leaves SIG_DFL behind: nothing may arrive before the program's own handler is back.
  sigset_t taken;
  sigset_t mask;
  ::sigemptyset(&taken);
  for (const auto& [number, had] : before_) ::sigaddset(&taken, number);
  ::pthread_sigmask(SIG_BLOCK, &taken, &mask);
  boost::system::error_code ignored;
  signals_.clear(ignored);
  for (const auto& [number, had] : before_) ::sigaction(number, &had, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

Result<> StopCalls::listen(const JobStop& stop, std::function<void()> heard) {
  const int copy = ::fcntl(detail::inside(stop).calls.get(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) {
    return failed(Status::kResourceExhausted,
                  fmt::format("cannot create a descriptor to stop this job with: {}", std::strerror(errno)));
  }
  end_.assign(copy);
  heard_ = std::move(heard);
  wait();
  return {};
}

void StopCalls::wait() {
  end_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    uint64_t calls = 0;
    if (::read(end_.native_handle(), &calls, sizeof(calls)) != static_cast<ssize_t>(sizeof(calls))) calls = 0;
    for (; calls > 0; --calls) heard_();
    wait();
  });
}

}  // namespace elastic
}  // namespace pliant
