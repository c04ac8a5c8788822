// Audit: counts from a ledger how often each sample was used, against what the sampler plans.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/result.hpp"
#include "elastic/ledger.hpp"
#include "pliant/batches.hpp"

namespace pliant::elastic {

/// Uses are counted per (epoch, sample). expected = used_once + repeated + missing.
struct Audit {
  int64_t expected = 0;  ///< uses that the first `steps` batches of the plan hold
  int64_t used_once = 0;
  int64_t repeated = 0;
  int64_t missing = 0;
  std::map<std::string, int64_t> dropped;  ///< by reason, over the epochs that those batches begin
};

/// Where an audit begins: in an epoch, whose first step this is.
struct AuditFrom {
  int64_t epoch = 0;
  int64_t step = 0;
};

/// Replans the epochs with `batches` and checks every commit of `lineage` against the batch that it names: kDataLoss,
/// naming the step, when its digest, its size or its shares are not those of the plan. `steps`: how far the job should
/// have come, at most as many as the job has. What comes before `from` is neither planned nor checked. O(samples of
/// those epochs).
Result<Audit> audit(const Lineage& lineage, Batches& batches, int64_t steps, AuditFrom from = {});

/// Steps of the job: exact when it has come to its last epoch or to max_steps, as one that is finished has.
int64_t steps_of_job(Batches& batches);

}  // namespace pliant::elastic
