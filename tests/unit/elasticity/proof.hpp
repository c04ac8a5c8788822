// Holds one random config against brute force, through the real ABI.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace proof {

/// "v0.1", "v0.2", "exact", and "extreme": all three with numbers that brute force cannot plan.
const std::vector<std::string>& subjects();

struct Outcome {
  bool planned = false;        ///< else refused
  std::string counterexample;  ///< what is wrong, with the config as TOML; empty when all holds
};

/// Of the plan of config `number`:
/// - it is the plan that brute force finds, or both refuse;
/// - every size that it lists (of exact and strict) works: rows add up, shares differ by at most one granule;
/// - order and repetition of micro_batch_sizes change nothing (v0.1, exact);
/// - wider limits never leave fewer sizes (v0.1), a higher cap or a lower floor never a worse batch (exact);
/// - an extreme config is planned within its limits or refused with a reason.
Outcome check(const std::string& subject, uint64_t number);

}  // namespace proof
