// Polls the pidfds of processes.
#include "common/processes/process_watch.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

using sdk::Failure;

namespace {
[[noreturn]] void refused(const std::string& why) {
  throw Failure(PLIANT_RESOURCE_EXHAUSTED, "another process cannot be watched: " + why);
}
}  // namespace

ProcessWatch::~ProcessWatch() {
  if (!thread_.joinable()) return;
  if (::getpid() != owner_) {  // a forked child has no such thread
    thread_.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    knock();
  }
  thread_.join();
}

void ProcessWatch::knock() const {
  const uint64_t one = 1;
  // An eventfd refuses only when 2^64 knocks are unread.
  [[maybe_unused]] const ssize_t written = ::write(knocks_.get(), &one, sizeof(one));
}

void ProcessWatch::start() {
  if (thread_.joinable()) return;
  knocks_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!knocks_) refused(std::string("eventfd: ") + std::strerror(errno));
  try {
    thread_ = std::thread([this] { loop(); });
  } catch (const std::system_error& none) {
    refused(std::string("no thread: ") + none.what());
  }
}

void ProcessWatch::watch(const ProcessId& process, const std::weak_ptr<Concerned>& concerned) {
  {
    const std::lock_guard lock(mutex_);
    start();
    const auto found = watched_.find(process.packed());
    if (found != watched_.end()) {
      Watched& one = found->second;
      if (one.concerned.size() >= one.sweep_at) {
        std::erase_if(one.concerned, [](const auto& who) { return who.expired(); });
        one.sweep_at = 2 * one.concerned.size() + 8;
      }
      one.concerned.push_back(concerned);
      return;
    }
    UniqueFd opened = watch_process(process);
    if (opened) {
      watched_.emplace(process.packed(), Watched{std::move(opened), {concerned}});
      knock();
      return;
    }
    if (errno != ESRCH)
      refused(std::string("pidfd_open: ") + std::strerror(errno) + "; close files or raise ulimit -n");
  }
  if (const auto who = concerned.lock()) who->ended(process);
}

void ProcessWatch::loop() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    std::vector<pollfd> polled{{knocks_.get(), POLLIN, 0}};
    std::vector<uint64_t> processes{0};
    for (const auto& [packed, one] : watched_) {
      polled.push_back({one.process.get(), POLLIN, 0});
      processes.push_back(packed);
    }
    lock.unlock();
    const int ready = ::poll(polled.data(), polled.size(), -1);
    lock.lock();
    if (ready < 0) continue;  // a signal
    uint64_t knocks = 0;
    [[maybe_unused]] const ssize_t read = ::read(knocks_.get(), &knocks, sizeof(knocks));
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      const auto concerned = std::move(watched_.extract(processes[i]).mapped().concerned);
      lock.unlock();
      for (const auto& one : concerned) {
        if (const auto who = one.lock()) who->ended(ProcessId::unpack(processes[i]));
      }
      lock.lock();
    }
  }
}

}  // namespace pliant::accelerator
