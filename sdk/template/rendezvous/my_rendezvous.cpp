// my-rendezvous: one node, whose workers meet at a port of a range that the config names. Where calls to what your
// nodes agree through (a key-value store, a scheduler) belong stands a comment.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

#include "pliant/sdk/rendezvous.hpp"

class MyRendezvous {
 public:
  int64_t first_port = 29500;
  int64_t ports = 100;

  static void options(pliant::sdk::Options<MyRendezvous>& table) {
    table.add("first_port", &MyRendezvous::first_port, "The first port that workers may use to meet.").range(1, 65535);
    table.add("ports", &MyRendezvous::ports, "Number of ports, from first_port on, that they may use.").range(1, 65535);
  }

  /// Called when the job starts and whenever a worker or a node has come or gone.
  pliant::sdk::Generation join(const pliant::sdk::JoinRequest& request) {
    const std::lock_guard lock(mutex_);
    if (left_) throw has_left();
    // With other nodes: say under request.run_id that this one is here with request.local_workers workers, wait until
    // the others have said so too or leave() was called, and answer what all of them agree on.
    pliant::sdk::Generation made;
    made.generation = ++generation_;  // higher than every one before, on every node
    made.group_rank = 0;
    made.node_count = 1;
    made.first_rank = 0;
    made.world_size = request.local_workers;  // over all nodes
    made.master_addr = "127.0.0.1";           // of the node with group_rank 0
    made.master_port = free_port();           // of that node, too
    return made;
  }

  /// True as soon as a node has come or gone and all should join again; false after timeout_ms.
  bool watch(int32_t timeout_ms) {
    std::unique_lock lock(mutex_);
    const auto left = [this] { return left_; };
    if (timeout_ms < 0) left_changed_.wait(lock, left);
    if (timeout_ms >= 0) left_changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), left);
    if (left_) throw has_left();
    return false;
  }

  /// Called from another thread, while join or watch may be waiting.
  void leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
    left_changed_.notify_all();
  }

 private:
  static pliant::sdk::Failure has_left() { return {PLIANT_ABORTED, "this node has left the rendezvous"}; }

  static bool is_free(int64_t port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool bound = ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    if (socket >= 0) ::close(socket);
    return bound;
  }

  /// Another one than last time where there are several: a late worker of the generation before meets nobody there.
  int32_t free_port() {
    for (int64_t tried = 0; tried < ports; ++tried) {
      const int64_t port = first_port + next_++ % ports;
      if (port <= 65535 && is_free(port)) return static_cast<int32_t>(port);
    }
    throw pliant::sdk::Failure(PLIANT_RESOURCE_EXHAUSTED, "no port of the " + std::to_string(ports) + " from " +
                                                              std::to_string(first_port) + " on is free");
  }

  std::mutex mutex_;
  std::condition_variable left_changed_;
  bool left_ = false;
  int64_t generation_ = 0;
  int64_t next_ = 0;
};

PLIANT_RENDEZVOUS(MyRendezvous, "my-rendezvous", "0.1.0", "one node, whose workers meet at a port of a range")
