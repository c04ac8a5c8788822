// Pace: when steps were committed, what interruptions cost, and how fast the job is.
#pragma once

#include <cstdint>
#include <vector>

#include "elastic/ledger.hpp"
#include "pliant/job.hpp"

namespace pliant::elastic {

class Pace {
 public:
  /// Work was lost at `now`. Only the first of several between two commits counts.
  void interrupted(double now);
  /// A step was committed at `now`, in seconds since the job began: how it stands.
  JobProgress committed(const CommitRecord& entry, int64_t world_size, int64_t total_steps, double now);

  [[nodiscard]] int64_t steps() const { return static_cast<int64_t>(commits_.size()); }
  /// From the first commit to the last, interruptions included; 0 before the second commit.
  [[nodiscard]] double tokens_per_second() const;
  /// Seconds between the commits around each interruption, less a usual step.
  [[nodiscard]] double seconds_lost() const;
  /// Seconds from the notice of a loss to the next commit, the longest.
  [[nodiscard]] double worst_recovery() const { return worst_recovery_; }

 private:
  struct Mark {
    double seconds;
    int64_t tokens;
    bool interrupted;  // work was lost between the commit before and this one
  };
  [[nodiscard]] int64_t tokens_of_last(size_t window) const;

  std::vector<Mark> commits_;
  int64_t tokens_after_first_ = 0;  // the first commit ends a step whose beginning was not measured
  double interrupted_at_ = -1;
  double worst_recovery_ = 0;
};

}  // namespace pliant::elastic
