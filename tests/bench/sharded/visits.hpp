// What visits of modules cost the thread that makes them, through Runtime: the decision of a coordinator, held against
// the rules, and all that carrying it out takes of the thread.
#pragma once

#include <cstdint>
#include <string>

#include "bench/sharded/times.hpp"
#include "pliant/accelerator.hpp"

namespace pliant::bench {

/// Of one module, entered and left; us.
struct Visits {
  std::string bounds;  ///< of the coordinator, in words
  double groups = 0;   ///< gathers, each one collective, for each visit
  Spread thread;       ///< of the calling thread, with what it spins while it waits
  Spread whole;        ///< by the clock
  Spread decision;     ///< of the calling thread, in means of 16 visits
  [[nodiscard]] double share() const { return thread.median > 0 ? decision.median / thread.median : 0; }
};

struct VisitsOfPass {
  Visits forward;
  Visits backward;  ///< with the gradients that leave and the sums of those that arrive
};

/// Steps of one pass each over 16 layers of `parameters` parameters. The same calls are made of a coordinator alone,
/// after each pass, for its part.
VisitsOfPass measure_visits(const Accelerator& accelerator, const std::string& coordinator, int32_t world_size,
                            size_t parameters);

/// What a trace adds: means of a step's visits, us of the calling thread.
struct TracedVisits {
  Spread plain;
  Spread traced;
  Spread added;  ///< between a step with and the one before it without
};

/// Steps as in measure_visits; every other one is written to a trace.
TracedVisits measure_traced_visits(const Accelerator& accelerator, const std::string& coordinator, int32_t world_size,
                                   size_t parameters);

}  // namespace pliant::bench
