// What ranks would lose by waiting for each other, for every balancer.
#pragma once

#include <cstdint>
#include <vector>

#include "pack/study.hpp"

namespace pliant::cli {

/// Predicts `study.rank_times` at `world_sizes` from an even sample of the epoch's batches.
void predict_rank_times(const Config& config, const PackBatch& batch, const std::vector<int64_t>& world_sizes,
                        Batches& batches, PackStudy& study, ProgressLine& progress);

}  // namespace pliant::cli
