// Rank-time lost by waiting for the slowest rank.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "pliant/balancer.hpp"
#include "pliant/error.hpp"

namespace pliant {

namespace {

double cost_of(std::span<const int64_t> row_costs, RowRange rows) {
  const auto known = std::ssize(row_costs);
  if (rows.first < 0 || rows.count < 0 || rows.first > known || rows.count > known - rows.first) {
    throw Error(Status::kInvalidArgument,
                fmt::format("an assignment has {} rows from row {} on, but costs are known for {} rows", rows.count,
                            rows.first, known));
  }
  const auto of_block = row_costs.subspan(static_cast<size_t>(rows.first), static_cast<size_t>(rows.count));
  return std::accumulate(of_block.begin(), of_block.end(), 0.0,
                         [](double sum, int64_t cost) { return sum + static_cast<double>(cost); });
}

double lost(double work, double rank_time) {
  return rank_time > 0 ? std::max(0.0, 1 - work / rank_time) : 0;
}

}  // namespace

Waiting& Waiting::operator+=(const Waiting& other) {
  work += other.work;
  per_step += other.per_step;
  per_micro_batch += other.per_micro_batch;
  return *this;
}

double Waiting::lost_per_step() const {
  return lost(work, per_step);
}

double Waiting::lost_per_micro_batch() const {
  return lost(work, per_micro_batch);
}

Waiting waiting(std::span<const int64_t> row_costs, const Assignment& assignment) {
  const auto ranks = static_cast<double>(assignment.world_size());
  Waiting sum;
  std::vector<double> slowest;  // block by block
  double longest = 0;
  for (int64_t rank = 0; rank < assignment.world_size(); ++rank) {
    const std::span<const RowRange> blocks = assignment.of(rank);
    if (blocks.size() > slowest.size()) slowest.resize(blocks.size());
    double load = 0;
    for (size_t k = 0; k < blocks.size(); ++k) {
      const double cost = cost_of(row_costs, blocks[k]);
      load += cost;
      slowest[k] = std::max(slowest[k], cost);
    }
    sum.work += load;
    longest = std::max(longest, load);
  }
  sum.per_step = longest * ranks;
  sum.per_micro_batch = std::accumulate(slowest.begin(), slowest.end(), 0.0) * ranks;
  return sum;
}

}  // namespace pliant
