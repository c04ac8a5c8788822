// Polls the pidfds of all peers; another thread tells it when a rank has joined, for joins come by futex.
#include "common/exchange/watcher.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "common/exchange/group.hpp"
#include "common/processes/futex.hpp"

namespace pliant::accelerator {

using sdk::Failure;

Watcher::Watcher(Group& group) : group_(group), knocks_(::eventfd(0, EFD_CLOEXEC)) {
  if (!knocks_) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED,
                  std::string("cannot watch the other ranks: eventfd: ") + std::strerror(errno));
  }
  try {
    watching_ = std::thread([this] { watch(); });
    joining_ = std::thread([this] { announce_joins(); });
  } catch (const std::system_error& refused) {
    stop_.store(true);
    knock();
    if (watching_.joinable()) watching_.join();
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("cannot watch the other ranks: no thread: ") + refused.what());
  }
}

Watcher::~Watcher() {
  stop_.store(true);
  knock();
  group_.wake();
  watching_.join();
  joining_.join();
}

void Watcher::knock() {
  const uint64_t one = 1;
  // An eventfd refuses only when 2^64 knocks are unread.
  [[maybe_unused]] const ssize_t written = ::write(knocks_.get(), &one, sizeof(one));
}

void Watcher::announce_joins() {
  auto& doorbell = group_.segment().rank(group_.rank()).doorbell;
  for (;;) {
    const uint32_t bell = doorbell.load();
    if (stop_.load()) return;
    const bool complete = group_.all_joined();
    knock();
    if (complete) return group_.joining_is_over();
    futex_wait(doorbell, bell);
  }
}

void Watcher::watch() {
  adopt(group_.segment().maker());
  while (!stop_.load()) {
    adopt_joined();
    std::vector<pollfd> polled{{knocks_.get(), POLLIN, 0}};
    std::vector<uint64_t> owners{0};
    for (const auto& [process, fd] : watched_) {
      if (!fd) continue;
      polled.push_back({fd.get(), POLLIN, 0});
      owners.push_back(process);
    }
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;  // a signal
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      watched_[owners[i]].reset();
      ended(ProcessId::unpack(owners[i]));
    }
    if (polled[0].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(knocks_.get(), &count, sizeof(count));
    }
  }
}

void Watcher::adopt_joined() {
  for (int32_t r = 0; r < group_.world_size(); ++r) {
    const uint64_t claim = group_.segment().rank(r).claim.load();
    if (claim != 0) adopt(ProcessId::unpack(claim));
  }
}

void Watcher::adopt(const ProcessId& process) {
  const auto [at, fresh] = watched_.try_emplace(process.packed());
  if (!fresh || process == ProcessId::self()) return;
  at->second = watch_process(process);
  if (at->second) return;
  if (errno == ESRCH) {
    ended(process);
  } else {
    const int reason = errno;
    int32_t rank = 0;
    while (rank + 1 < group_.world_size() && group_.segment().rank(rank).claim.load() != process.packed()) ++rank;
    group_.fail_here({FailureCause::kUnwatched, rank, reason});
  }
}

void Watcher::ended(const ProcessId& process) {
  bool had_rank = false;
  for (int32_t r = 0; r < group_.world_size(); ++r) {
    if (group_.segment().rank(r).claim.load() != process.packed()) continue;
    had_rank = true;
    if (!group_.left(r)) return group_.fail({FailureCause::kDied, r, process.pid});
  }
  if (!had_rank) group_.fail({FailureCause::kMakerDied, -1, process.pid});
}

}  // namespace pliant::accelerator
