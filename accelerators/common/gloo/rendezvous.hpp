// Rendezvous: where ranks that know an id leave their Gloo addresses and get those of the others. One small server, in
// the process that made the id; every rank is its client.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/exchange/failure_cause.hpp"
#include "common/gloo/network.hpp"

namespace pliant::accelerator {

/// What the two say to each other.
struct Note {
  enum Kind : uint32_t {
    kHello = 1,    ///< of `rank`; body: the secret, then the rank's addresses, one for each rank
    kDone = 2,     ///< `rank` is connected to all and needs the server no more
    kTable = 3,    ///< body: the address of each rank for this one
    kFailed = 4,   ///< the communicator is over: `rank` says so, or went away before it was done; body: the cause
    kRefused = 5,  ///< `rank` has joined already
  };
  uint32_t kind = 0;
  int32_t rank = -1;
  std::string body = {};

  static Note of(const FailureCause& cause, int32_t rank);
  /// Of a kFailed; empty when it is none that a rank sends.
  [[nodiscard]] std::optional<FailureCause> cause() const;
};

/// Notes over a socket that never blocks.
class NoteChannel {
 public:
  NoteChannel(UniqueFd fd, uint64_t most_body) : fd_(std::move(fd)), most_body_(most_body) {}
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Events to poll for.
  [[nodiscard]] short events() const;
  void push(const Note& note);
  /// Reads and writes what can be. False: the other end is gone, or says what is no note.
  bool pump();
  /// The next whole note.
  std::optional<Note> next();

 private:
  UniqueFd fd_;
  const uint64_t most_body_;
  std::string in_;
  std::string out_;
};

/// Wakes a poll.
class Knock {
 public:
  Knock();
  [[nodiscard]] int fd() const { return fd_.get(); }
  void knock();
  void clear();

 private:
  UniqueFd fd_;
};

class RendezvousServer {
 public:
  using Clock = std::chrono::steady_clock;
  /// Bytes of a rank's address at another, at most.
  static constexpr uint64_t kMostAddress = 512;
  /// Starts serving. Throws PLIANT_RESOURCE_EXHAUSTED.
  RendezvousServer(const NetworkId& id, std::shared_ptr<UniqueFd> listener);
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;
  static uint64_t most_body(int32_t world_size);
  /// Waits until no rank needs it, or one has failed.
  void drain(Clock::time_point deadline);

 private:
  struct Guest {
    NoteChannel channel;
    Clock::time_point since;
    int32_t rank = -1;  ///< -1: has not shown the secret yet
    bool done = false;
    bool over = false;
  };
  void serve();
  void admit_new();
  void drop_strangers();
  void hear(Guest& guest);
  void greet(Guest& guest, const Note& hello);
  void hand_out();
  /// Tells all who are here, and whoever comes. The first cause stands.
  void fail(const Note& failed);
  [[nodiscard]] bool all_done() const;
  void set_drained();

  const NetworkId id_;
  std::shared_ptr<UniqueFd> listener_;
  Clock::time_point admit_from_{};
  Knock stop_;
  std::list<Guest> guests_;
  std::vector<std::string> addresses_;  ///< by rank; empty: has not come
  std::vector<bool> finished_;
  std::optional<Note> failed_;
  bool handed_out_ = false;
  std::mutex mutex_;  ///< of the next two
  std::condition_variable drained_;
  bool is_drained_ = false;
  std::thread thread_;  // last: uses the members above
};

}  // namespace pliant::accelerator
