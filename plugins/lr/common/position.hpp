// Where a job stands, as schedules and ramps count it.
#pragma once

#include <cmath>
#include <string>

#include "pliant/sdk/lr_rule.hpp"

namespace pliant::lr {

inline constexpr const char* kByDoc =
    "Unit of distances: \"progress\" = base batches, so a schedule ends after the same data at any batch size; "
    "\"steps\" = optimizer updates.";

/// Steps of the base batch that the progress so far stands for, or optimizer updates. Finite, >= 0.
inline double position(const sdk::LrInput& in, const std::string& by) {
  if (by == "steps") return static_cast<double>(in.step);
  const double at = in.progress / in.base_batch;
  sdk::require(std::isfinite(at) && at >= 0, [&] {
    return "a progress of " + std::to_string(in.progress) + " over a base_batch of " + std::to_string(in.base_batch) +
           " is not a position in a schedule";
  });
  return at;
}

/// `steps`, or where it is 0 the length of the job in the same measure; throws when that is not known.
inline double length(const sdk::LrInput& in, const std::string& by, double steps, const char* option) {
  if (steps > 0) return steps;
  const double whole = by == "steps" ? static_cast<double>(in.total_steps) : in.total_progress / in.base_batch;
  sdk::require(std::isfinite(whole) && whole > 0,
               [&] { return std::string(option) + " = 0 means the length of the job, which is unknown here; set it"; });
  return whole;
}

/// The answer with the scheduled rate moved to floor + (rate - floor) * share.
inline sdk::LrScaling scheduled(const sdk::LrInput& in, double floor, double share) {
  sdk::LrScaling made = in.so_far;
  made.replace_schedule(floor == 0 ? made.scheduled_lr * share : floor + (made.scheduled_lr - floor) * share);
  return made;
}

}  // namespace pliant::lr
