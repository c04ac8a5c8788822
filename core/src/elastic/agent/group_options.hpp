// GroupOptions: what a group of workers goes by; and how a job ends.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pliant/balancer.hpp"
#include "pliant/error.hpp"
#include "pliant/job.hpp"

namespace pliant::elastic {

struct GroupOptions {
  int64_t workers = 1;
  std::map<int64_t, int64_t> micro_batch_of;  ///< by valid world size <= workers, for the pinned global batch
  std::map<int64_t, int64_t> other_batch_of;  ///< sizes that are not valid because the policy answers another batch
  CostRates rates;                            ///< what the balancer begins with
  bool fit = false;                           ///< the rates follow the measured times
  std::string on_loss = "replace";
  bool kill_when_failed =
      false;  ///< workers of a job that fails do not end by themselves, as those of one that is done do
  std::string on_nonfinite = "stop";
  std::string fingerprint;                   ///< of the run that the job resumes; empty: it has no ledger yet
  std::optional<int64_t> stopped_before_at;  ///< the step that was not finite when this job ended the last time
  int64_t max_restarts = 3;
  bool compare_states = false;  ///< after a copy and after the last step, too; [run] digest_every above 0
  bool must_attach = false;     ///< a worker that never says Hello is late too
  double start_timeout_s = 120;
  double hang_timeout_s = 300;
  double min_resize_interval_s = 0;  ///< between two resizes that nothing forces
  int64_t snapshot_every = 0;
  bool trace = false;  ///< workers record what they do
  std::vector<InjectedKill> injections;
};

// The ends of jobs. `worker`: how the one ended for which the job does.

inline JobEnd job_failed(std::string reason, Origin origin = Origin::kRun, std::optional<WorkerEnd> worker = {}) {
  return {JobOutcome::kFailed, std::move(reason), origin, 0, worker};
}
inline JobEnd job_failed(const Error& error) {
  return job_failed(error.message(), error.origin());
}
inline JobEnd job_ended_early(std::string reason) {
  return {JobOutcome::kEndedEarly, std::move(reason)};
}
inline JobEnd job_stopped(int signal, std::string reason) {
  return {JobOutcome::kStopped, std::move(reason), Origin::kRun, signal};
}
inline JobEnd job_without_world_size(std::string reason, std::optional<WorkerEnd> worker) {
  return {JobOutcome::kNoWorldSize, std::move(reason), Origin::kWorldSize, 0, worker};
}

/// Neither finished nor stopped on demand.
inline bool is_broken_off(const JobEnd& end) {
  return end.outcome == JobOutcome::kFailed || end.outcome == JobOutcome::kNoWorldSize;
}

/// Finished, or ended early.
inline bool is_done(const JobEnd& end) {
  return end.outcome == JobOutcome::kFinished || end.outcome == JobOutcome::kEndedEarly;
}

}  // namespace pliant::elastic
