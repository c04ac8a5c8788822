#include "elastic/agent/callers.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "elastic/calling.hpp"
#include "elastic/message.hpp"

namespace pliant::elastic {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostWaiting = 4096;  // connections; more than [run] workers allows are somebody's mistake

tl::unexpected<Error> misfit(const std::string& how) {
  return failed(Status::kInvalidArgument, how, Origin::kInput);
}

}  // namespace

Result<> Callers::accept_all() {
  ::fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
  while (pending_.size() < kMostWaiting) {
    FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (socket.get() < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (socket.get() < 0) {
      return failed(Status::kFailedPrecondition,
                    fmt::format("cannot take the calls of workers: {}", std::strerror(errno)));
    }
    const Result<Peer> peer = peer_of(socket.get());
    if (!peer || peer->user != ::geteuid()) continue;
    FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, peer->process, 0)));
    if (pidfd.get() < 0 && errno == ESRCH) continue;  // it has ended since
    if (pidfd.get() < 0) {
      return failed(Status::kFailedPrecondition,
                    fmt::format("cannot watch process {}, which has called as a worker: {}", peer->process,
                                std::strerror(errno)));
    }
    pending_.push_back({{std::move(socket), std::move(pidfd), peer->process}});
  }
  return {};
}

Result<bool> Callers::hear(Pending& one, int64_t world_size) {
  char bytes[512];
  while (one.rank < 0) {
    const ssize_t n = ::recv(one.worker.socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (n <= 0) return false;
    one.said.append(bytes, static_cast<size_t>(n));
    const size_t end = one.said.find('\n');
    if (end == std::string::npos && one.said.size() < kLongestCall) continue;
    const Result<Call> call = parse_call(std::string_view(one.said).substr(0, end));
    // A worker says nothing more before it is welcomed.
    if (!call || end + 1 != one.said.size()) return false;
    if (call->protocol != kProtocol) {
      return misfit(
          fmt::format("process {} was built with another version of Pliant than its agent (protocol {} "
                      "instead of {}); install one version",
                      one.worker.process, call->protocol, kProtocol));
    }
    if (call->world_size != world_size || call->rank < 0 || call->rank >= world_size) {
      return misfit(fmt::format("process {} calls itself rank {} of {}, and this job has {} workers",
                                one.worker.process, call->rank, call->world_size, world_size));
    }
    const auto same =
        std::find_if(pending_.begin(), pending_.end(), [&](const Pending& other) { return other.rank == call->rank; });
    if (same != pending_.end()) {
      return misfit(fmt::format("processes {} and {} both call themselves rank {}", same->worker.process,
                                one.worker.process, call->rank));
    }
    one.rank = call->rank;
  }
  return true;
}

std::string Callers::missing(int64_t world_size) const {
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    const bool is_there =
        std::any_of(pending_.begin(), pending_.end(), [&](const auto& one) { return one.rank == rank; });
    if (!is_there) ranks.push_back(rank);
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

Result<std::vector<Caller>> Callers::gather(int64_t world_size, std::chrono::duration<double> at_most) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(at_most);
  const auto is_whole = [&] {
    return std::count_if(pending_.begin(), pending_.end(), [](const auto& one) { return one.rank >= 0; }) == world_size;
  };
  while (!is_whole()) {
    std::vector<pollfd> awaited{{listener_.get(), POLLIN, 0}};
    for (const Pending& one : pending_) {
      awaited.push_back({one.worker.socket.get(), POLLIN, 0});
      awaited.push_back({one.worker.pidfd.get(), POLLIN, 0});
    }
    awaited.push_back({starter_, 0, 0});  // poll passes over -1
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready =
        left > 0 ? ::poll(awaited.data(), awaited.size(), static_cast<int>(std::min<int64_t>(left, 1000))) : 0;
    if (ready < 0 && errno != EINTR) {
      return failed(Status::kFailedPrecondition, fmt::format("cannot wait for workers: {}", std::strerror(errno)));
    }
    if (left <= 0) {
      return failed(Status::kDeadlineExceeded,
                    fmt::format("{} of {} did not attach within {:.0f} s ([run] start_timeout_s)", missing(world_size),
                                world_size, at_most.count()));
    }
    if (ready > 0 && awaited.back().revents != 0) {
      return failed(Status::kPeerLost,
                    fmt::format("the process that started this agent ended before {} of {} had attached",
                                missing(world_size), world_size));
    }
    for (size_t i = 0; ready > 0 && i < (awaited.size() - 2) / 2; ++i) {
      Pending& one = pending_[i];
      const bool spoke = awaited[1 + 2 * i].revents != 0;
      const bool ended = awaited[2 + 2 * i].revents != 0;
      const bool had_called = one.rank >= 0;
      const Result<bool> heard = spoke && !had_called ? hear(one, world_size) : Result<bool>(true);
      if (!heard) return failed(Result<bool>(heard));
      if (!ended && *heard && !(spoke && had_called)) continue;
      if (one.rank >= 0) {
        return failed(Status::kPeerLost, fmt::format("rank {} (process {}) ended before all ranks had attached",
                                                     one.rank, one.worker.process));
      }
      one.worker.process = -1;  // no worker
    }
    std::erase_if(pending_, [](const Pending& one) { return one.worker.process < 0; });
    if (ready > 0 && awaited.front().revents != 0) {
      if (Result<> accepted = accept_all(); !accepted) return failed(std::move(accepted));
    }
  }
  listener_ = FileDescriptor();
  std::erase_if(pending_, [](const Pending& one) { return one.rank < 0; });
  std::sort(pending_.begin(), pending_.end(), [](const Pending& a, const Pending& b) { return a.rank < b.rank; });
  std::vector<Caller> workers;
  for (Pending& one : pending_) workers.push_back(std::move(one.worker));
  pending_.clear();
  return workers;
}

void Callers::refuse(const Error& why) {
  if (listener_.get() >= 0) static_cast<void>(accept_all());
  const std::string line = to_line(why) + "\n";
  for (const Pending& one : pending_) {
    // What does not fit in was not read by its process, which finds the agent gone then.
    static_cast<void>(::send(one.worker.socket.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  pending_.clear();
  listener_ = FileDescriptor();
}

}  // namespace pliant::elastic
