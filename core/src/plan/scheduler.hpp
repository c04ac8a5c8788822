// The contract with a resource scheduler: it and the job must see the same elasticity block.
//
// A scheduler that picks world sizes leaves its block as JSON in PLIANT_ELASTICITY_CONFIG: the block that
// `pliant plan --json` prints, or only its digest, or a flat block with the policy's own option names, where a key that
// is not there means its default. One that was made for DeepSpeed leaves DeepSpeed's flat block in
// DEEPSPEED_ELASTICITY_CONFIG; there only the keys decide that decide for DeepSpeed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "plan/block.hpp"
#include "pliant/config.hpp"

namespace pliant {

/// One variable that is set, with its text.
struct SchedulerBlock {
  std::string variable;
  std::string json;
};

/// Those of the two variables that are set.
std::vector<SchedulerBlock> scheduler_blocks();

enum class SchedulerView {
  kUnknown,  ///< no block: nothing says that the scheduler picks sizes that fit
  kSame,
};

/// Compares max_train_batch_size, micro_batch_sizes (order counts) and version of `runtime_json` with each block, by
/// Python's equality: 1100 equals 1100.0, 0.1 differs from "0.1". Other keys may differ. kInvalidArgument for a block
/// that is no block, kFailedPrecondition for one that differs; both name variable, key and values, and exit with 2.
Result<SchedulerView> ensure_same_elasticity(std::string_view runtime_json, const std::vector<SchedulerBlock>& blocks);

/// Holds `ours` against every block that is set: all options of the policy for PLIANT_ELASTICITY_CONFIG, those that
/// ensure_same_elasticity compares for DEEPSPEED_ELASTICITY_CONFIG, which counts under v0.1 and v0.2 only. Errors as
/// there.
Result<> ensure_same_block(const ElasticityBlock& ours, const std::vector<SchedulerBlock>& blocks);

/// Where the agent leaves the digest of its elasticity block for every worker.
constexpr const char* kDigestVariable = "PLIANT_ELASTICITY_DIGEST";

/// A worker's check: `config` (opened with the need "elasticity") has the block whose digest the agent gave, and agrees
/// with the scheduler. kFailedPrecondition (kInput) when not.
Result<> ensure_same_elasticity_as_agent(const Config& config, const std::string& digest);

/// ensure_same_block of `config` (opened with the need "elasticity") and the environment.
Result<> agree_with_scheduler(const Config& config);

}  // namespace pliant
