// Chooses the batch that wastes least device time when every world size may share it out.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace pliant::elasticity {

/// Granule counts that are looked at: the largest ones under the cap. Sizes that are counted one by one.
constexpr int64_t kWindow = int64_t{1} << 15;
constexpr int64_t kMostSizes = int64_t{1} << 20;

struct WeightedSize {
  int64_t world_size = 0;  ///< >= 1
  int64_t weight = 1;      ///< 1..10^6: how much of its time the job has this size
};

/// What a world size n costs with G granules: n * c * ceil(G / (n * c)) of granule-times, G of them useful. c is the
/// granules that a rank's time counts in: 1 when it grows with its rows, those of a micro-batch when a call takes as
/// long half empty.
struct Search {
  int64_t fewest_granules = 1;
  int64_t most_granules = 1;
  int64_t granules_at_once = 1;  ///< c
  std::vector<WeightedSize> sizes;
};

struct Waste {
  int64_t granules = 0;  ///< G
  __extension__ typedef unsigned __int128 Wide;
  Wide idle = 0;  ///< sum over sizes: weight * granule-times of idle devices in one step
};

/// idle / granules of `a` compared with that of `b`: negative, 0 or positive. Exact for any numbers.
int compare(const Waste& a, const Waste& b);

/// The G in [max(fewest, most - kWindow + 1), most] with the least idle / G, the largest such G. Integers only.
/// O(sizes + kWindow * log(kWindow)). nullopt when a product past 63 bits comes up.
std::optional<Waste> least_waste(const Search& search);

}  // namespace pliant::elasticity
