// Channel: the worker's end of the control socket. A thread of its own reads, so that an abort reaches a worker that
// computes.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/durable_file.hpp"
#include "elastic/message.hpp"

namespace pliant::elastic {

inline constexpr const char* kAgentSocketVariable = "PLIANT_AGENT_FD";
/// "7:4026531": the worker's end of a socket pair as the agent hands it on, in that variable. The second number is
/// the socket's own (st_ino), so that no other descriptor of this number is ever taken for it.
std::string text_of_socket(int fd);
/// The descriptor that `text` names, for this process alone from now on (FD_CLOEXEC). Throws kFailedPrecondition where
/// it is not open here, or was taken before: a process attaches once, and what a worker starts is no worker.
/// Agents of an older protocol gave the descriptor alone ("7"), which is taken where `same_protocol` is not set.
FileDescriptor take_socket(std::string_view text, bool same_protocol = true);

class Channel {
 public:
  /// `on_abort` runs on the reading thread when a generation ends; with kEveryGeneration once the
  /// agent is gone, which has closed its end, died or sent what is no message. `resume`: the command that is advised
  /// then (resume_command()).
  Channel(FileDescriptor fd, std::function<void(int64_t generation)> on_abort, std::string resume);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  static constexpr int64_t kEveryGeneration = INT64_MAX;

  /// [any-thread] Blocks while the socket is full. What a gone agent does not read is lost.
  void send(const FromWorker& message);
  /// Blocks until a message is there. Throws kPeerLost once the agent is gone and all that it said is read.
  ToWorker receive();
  /// [any-thread] Throws kPeerLost once the agent is gone.
  void require_agent();

 private:
  void read_all();
  void lose_agent(std::string why);
  [[noreturn]] void throw_gone() const;

  FileDescriptor fd_;
  std::function<void(int64_t)> on_abort_;
  const std::string resume_;
  std::mutex mutex_;
  std::mutex send_mutex_;
  std::condition_variable arrived_;
  std::deque<ToWorker> inbox_;
  bool closing_ = false;
  std::optional<std::string> gone_;  ///< why the agent is
  std::thread reader_;
};

}  // namespace pliant::elastic
