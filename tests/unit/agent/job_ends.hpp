// How jobs end, as tests ask for it.
#pragma once

#include <csignal>

#include "pliant/job.hpp"

namespace pliant::elastic {

inline bool is_finished(const JobEnd& end) {
  return end.outcome == JobOutcome::kFinished;
}
inline bool ended_early(const JobEnd& end) {
  return end.outcome == JobOutcome::kEndedEarly;
}
inline bool has_failed(const JobEnd& end, Origin origin = Origin::kRun) {
  return end.outcome == JobOutcome::kFailed && end.origin == origin;
}
inline bool has_no_world_size(const JobEnd& end) {
  return end.outcome == JobOutcome::kNoWorldSize;
}
inline bool was_stopped(const JobEnd& end, int signal = SIGINT) {
  return end.outcome == JobOutcome::kStopped && end.signal == signal;
}

}  // namespace pliant::elastic
