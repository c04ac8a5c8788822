// Chooses the batch that wastes least device time when every world size may share it out.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace pliant::elasticity {

/// Batches that are looked at, the largest ones, where a search of all would take long.
constexpr int64_t kMostBatches = int64_t{1} << 19;
/// Divisors (or world sizes) that are tried; where more would be needed the largest batch is taken.
constexpr int64_t kMostTried = int64_t{1} << 24;

struct WeightedSize {
  int64_t world_size = 0;  ///< >= 1, ranks
  int64_t weight = 1;      ///< >= 1: how much of its time the job has this size
};

/// What a world size n costs with G granules: n * c * ceil(G / (n * c)) of granule-times, G of them useful. c is the
/// granules that a rank's time counts in: 1 when it grows with its rows, those of a micro-batch when a call takes as
/// long half empty.
struct WasteSearch {
  int64_t fewest_granules = 1;
  int64_t most_granules = 1;
  int64_t granules_at_once = 1;  ///< c
  int64_t low = 1;               ///< world sizes low, low + step, ..., high count the same,
  int64_t high = 1;
  int64_t step = 1;
  std::vector<WeightedSize> weighted;  ///< unless there are some here: ascending, each once
};

__extension__ typedef unsigned __int128 Wide;

struct Waste {
  int64_t granules = 0;  ///< G
  Wide idle = 0;         ///< sum over sizes: weight * granule-times of idle devices in one step
};

/// idle / granules of `a` compared with that of `b`: negative, 0 or positive. Exact for any numbers.
int compare(const Waste& a, const Waste& b);

/// Of the G from fewest_granules to most_granules the one with the least idle / G, the largest such G: exactly, where
/// that takes kMostBatches; of the largest kMostBatches multiples of the periods' common divisor otherwise. Without a
/// search {most_granules, 0} where kMostTried would not do. Integers only. nullopt when n * c does not fit 63 bits.
/// O(r + b * log(r)) with b batches and r the number of sizes or, if that is less, the root of most_granules.
std::optional<Waste> least_waste(const WasteSearch& search);

}  // namespace pliant::elasticity
