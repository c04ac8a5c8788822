// CallTracer: strikes one process of a job at its n-th system call, whichever that is.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>

namespace pliant::test {

/// Follows a process with ptrace. Use it from one thread; that thread has to reap every child with step().
class CallTracer {
 public:
  /// `agent`: a child that has not begun. `child`: 0 = itself, n = the n-th process that it starts. `stop`: the number
  /// of entries and returns of system calls after which that process gets `signal`.
  CallTracer(pid_t agent, int child, int64_t stop, int signal);

  /// Deals with what waitpid(__WALL) told of `pid`; false when that was an end, which is the caller's.
  bool step(pid_t pid, int status);
  [[nodiscard]] int64_t stops_seen() const { return seen_; }
  /// The process that was struck; 0 before.
  [[nodiscard]] pid_t struck() const { return struck_; }

 private:
  enum class What { kUnknown, kAgent, kTarget, kOther };
  void began(pid_t pid, What what);
  void go_on(pid_t pid, int signal);
  void count(pid_t pid);

  pid_t agent_;
  int child_;
  int64_t stop_;
  int signal_;
  int children_ = 0;
  int64_t seen_ = 0;
  pid_t target_ = 0;
  pid_t struck_ = 0;
  std::map<pid_t, What> what_;
  std::set<pid_t> waiting_;  ///< stopped at their start before their parent told of them
};

}  // namespace pliant::test
