// The contract with a resource scheduler: it and the job must see the same elasticity block.
//
// A scheduler that picks world sizes leaves its block as JSON in PLIANT_ELASTICITY_CONFIG, or, if it was made for
// DeepSpeed, in DEEPSPEED_ELASTICITY_CONFIG. The keys are DeepSpeed's: enabled, max_train_batch_size,
// micro_batch_sizes, version, ...
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

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

}  // namespace pliant
