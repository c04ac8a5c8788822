// Warden: a small process beside the agent that kills what is left of the job when the agent is gone, however it went.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/result.hpp"

namespace pliant::elastic {

/// The agent's handle of that process. Nothing here ever waits for it: it may be stopped or dead.
class Warden {
 public:
  /// After the agent's death workers that are told of it have so long to end by themselves. Those of foreign programs
  /// die with the agent.
  static constexpr int kGraceMs = 1000;
  /// Workers have it in their environment, and so has what they start.
  static constexpr const char* kVariable = "PLIANT_INCARNATION";

  /// Forks. What belongs to the job is known by `run_id` and a random number: a job that is resumed is another one.
  static Result<Warden> start(const std::string& run_id);
  /// Kills every process that is left of the job, whatever session or group it has gone to, and ends the warden.
  ~Warden();
  Warden(Warden&& other) noexcept;
  Warden& operator=(Warden&&) = delete;

  /// The value of kVariable, "<run id>/<16 hexadecimal digits>".
  [[nodiscard]] const std::string& incarnation() const { return incarnation_; }
  /// Readable when the process has ended; -1: there is none.
  [[nodiscard]] int pidfd() const { return pidfd_; }

  /// Group `pgid`, whose leader has not been reaped, is the job's from now on, or is so no longer.
  void watch(pid_t pgid);
  void forget(pid_t pgid);
  /// Puts another in the place of one that has ended, is stopped or does not read. True when that was done.
  /// kResourceExhausted: there is no process or descriptor to be had; call again.
  Result<bool> tend();

 private:
  explicit Warden(std::string incarnation) : incarnation_(std::move(incarnation)) {}
  Result<> launch();
  void dismiss();
  void tell(pid_t pgid, uint64_t started);

  std::string incarnation_;
  std::map<pid_t, uint64_t> groups_;  ///< with the start time of the leader
  int socket_ = -1;
  int pidfd_ = -1;
  pid_t pid_ = -1;
  bool unheard_ = false;  ///< something could not be told
};

}  // namespace pliant::elastic
