// Channel: the worker's end of the control socket. A thread of its own reads, so that an abort reaches a worker that
// computes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "elastic/message.hpp"

namespace pliant::elastic {

class Channel {
 public:
  /// Takes over `fd`. `on_abort` runs on the reading thread when a generation ends. When the agent is gone the process
  /// ends at once (`_exit`): no worker outlives its agent.
  Channel(int fd, std::function<void(int64_t generation)> on_abort);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// [any-thread] Blocks while the socket is full.
  void send(const FromWorker& message);
  /// Blocks until a message is there.
  ToWorker receive();
  /// The next message if one is there.
  std::optional<ToWorker> poll();

 private:
  void read_all();

  int fd_;
  std::function<void(int64_t)> on_abort_;
  std::mutex mutex_;
  std::mutex send_mutex_;
  std::condition_variable arrived_;
  std::deque<ToWorker> inbox_;
  std::atomic<bool> closing_{false};
  std::thread reader_;
};

}  // namespace pliant::elastic
