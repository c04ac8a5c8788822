// The processes of a job, found from outside.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace pliant::test {

struct WorkerSeen {
  pid_t pid = 0;
  int64_t id = 0;  ///< as the agent counts
};

/// Processes that `parent` has started and that live.
std::vector<pid_t> children_of(pid_t parent);
/// The agent's workers, those that were started first first; `initial`: how many a job starts with.
std::vector<WorkerSeen> workers_of(pid_t agent, int64_t initial);
/// 0 when there is none.
pid_t warden_of(pid_t agent);
/// What workers have started.
std::vector<pid_t> grandchildren_of(pid_t agent, int64_t initial);
/// All of a job, by the run directories in their environment, which lie in `folder`.
std::vector<pid_t> processes_in(const std::string& folder);

}  // namespace pliant::test
