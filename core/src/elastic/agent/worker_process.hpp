// WorkerProcess: one worker as a process: start it, talk to it, notice its end, leave nothing of it behind.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "elastic/agent/callers.hpp"
#include "elastic/agent/group.hpp"

namespace pliant::elastic {

struct LaunchOrder {
  std::vector<std::string> command;                              ///< argv; argv[0] is a path
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to the agent's own, replacing equal names
  std::filesystem::path log;                                     ///< stdout and stderr of the worker, appended
  std::string working_dir;                                       ///< empty: the agent's
};

/// Finds the program `name`: with a slash from `folder` on, which is the working directory where it is empty; else
/// beside the running binary, then in PATH. The path is absolute. kNotFound (kInput).
Result<std::string> find_program(const std::string& name, const std::filesystem::path& folder);

/// A running worker. One that the agent started leads a process group of its own, dies with the agent, and its group is
/// killed when it ends. One that has called is of another launcher, which started it and hears how it ends.
class WorkerProcess {
 public:
  /// The worker inherits one socket, named by PLIANT_AGENT_FD. kFailedPrecondition with the reason when it cannot be
  /// started.
  static Result<WorkerProcess> start(const LaunchOrder& order);
  explicit WorkerProcess(Caller caller);
  ~WorkerProcess();
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] int pidfd() const { return pidfd_; }    ///< readable when it has ended
  [[nodiscard]] int socket() const { return socket_; }  ///< non-blocking
  [[nodiscard]] bool is_stopped() const;

  /// Sends as much as fits and keeps the rest. kResourceExhausted when it has left a MiB unread and more: nothing is
  /// kept then.
  Result<> send(const std::string& line);
  /// Sends what was kept; true when nothing is left.
  bool flush();
  /// Appends what has arrived, up to a MiB, to the inbox and returns its whole lines; sets `closed` at the end of the
  /// stream. kDataLoss for a line that is longer than a message may be.
  Result<std::vector<std::string>> receive(bool& closed);

  /// Sends `signal` to the whole process group; of a worker that has called to the process, which is all that is known
  /// of it.
  void signal_group(int signal) const;
  /// Sends `signal` to the process alone.
  void signal_alone(int signal) const;
  /// Reaps. Call when pidfd is readable. What the worker had started is killed. Of one that has called it is not known
  /// how it ended, nor whether it has.
  ExitStatus reap();

 private:
  WorkerProcess() = default;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int socket_ = -1;
  bool reaped_ = false;
  bool is_child_ = true;
  std::string outbox_;
  std::string inbox_;
};

}  // namespace pliant::elastic
