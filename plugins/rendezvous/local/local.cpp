// The `local` rendezvous: a job on one node. It meets nobody; each join begins the next generation.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>

#include "pliant/sdk/rendezvous.hpp"

namespace {

using pliant::sdk::Failure;
using pliant::sdk::Generation;
using pliant::sdk::JoinRequest;

class LocalRendezvous {
 public:
  Generation join(const JoinRequest& request) {
    pliant::sdk::require(request.local_workers >= 0,
                         "a node cannot bring " + std::to_string(request.local_workers) + " workers");
    const std::lock_guard lock(mutex_);
    if (left_) throw left_failure();
    Generation made;
    made.generation = ++generation_;
    made.world_size = request.local_workers;
    made.master_addr = "127.0.0.1";
    made.master_port = free_port();
    return made;
  }

  /// Nobody comes or goes on one node: waits for the time-out or for leave().
  bool watch(int32_t timeout_ms) {
    std::unique_lock lock(mutex_);
    const auto left = [this] { return left_; };
    if (timeout_ms < 0) {
      left_cv_.wait(lock, left);
    } else {
      left_cv_.wait_for(lock, std::chrono::milliseconds(timeout_ms), left);
    }
    if (left_) throw left_failure();
    return false;
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
    left_cv_.notify_all();
  }

 private:
  static Failure left_failure() { return {PLIANT_ABORTED, "this node has left the rendezvous"}; }

  /// A loopback port that the system gives to nobody else for now.
  static int32_t free_port() {
    const auto refused = [](const char* what) {
      return Failure(PLIANT_RESOURCE_EXHAUSTED,
                     std::string("no free port on 127.0.0.1 for MASTER_PORT: ") + what + ": " + std::strerror(errno));
    };
    struct Socket {
      ~Socket() {
        if (fd >= 0) ::close(fd);
      }
      int fd;
    } const socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (socket.fd < 0) throw refused("socket");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (::bind(socket.fd, reinterpret_cast<sockaddr*>(&address), size) != 0) throw refused("bind");
    if (::getsockname(socket.fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) throw refused("getsockname");
    return ntohs(address.sin_port);
  }

  std::mutex mutex_;
  std::condition_variable left_cv_;
  bool left_ = false;
  int64_t generation_ = 0;
};

}  // namespace

PLIANT_RENDEZVOUS(LocalRendezvous, "local", "0.1.0",
                  "One node: needs no other nodes; each join begins the next generation")
