// Warden: a small process beside the agent that kills the workers' process groups when the agent is gone, however it
// went.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.hpp"

namespace pliant::elastic {

class Warden {
 public:
  /// Forks. Call before the agent has threads. At the end every process that still has PLIANT_RUN_DIR=`run_directory`
  /// in its environment is killed, whatever session or group it has gone to.
  static Result<Warden> start(const std::string& run_directory);
  ~Warden();
  Warden(Warden&& other) noexcept;
  Warden& operator=(Warden&&) = delete;

  /// Group `pgid` is the job's from now on, or is so no longer.
  void watch(pid_t pgid);
  void forget(pid_t pgid);

 private:
  Warden() = default;
  void tell(pid_t pgid);
  int socket_ = -1;
  pid_t pid_ = -1;
};

}  // namespace pliant::elastic
