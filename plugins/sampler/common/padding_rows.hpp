// Rows without sequences that fill up the last batch of an epoch: tail = "pad".
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sampler {

void pad_last_batch(uint64_t batch, sdk::EpochRows& rows);

}  // namespace pliant::sampler
