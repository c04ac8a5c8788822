// What a sampler reports about the epoch that it has planned.
#pragma once

#include "base/result.hpp"
#include "data/row_source.hpp"
#include "pliant/abi/packing.h"
#include "pliant/batches.hpp"

namespace pliant::data {

/// What `table` (nullptr = the sampler reports nothing) says of the current epoch of `sampler`; without efficiency.
/// kPlugin when it breaks its contract.
Result<Packing> packing_of(const Sampler& sampler, const pliant_packing* table);

}  // namespace pliant::data
