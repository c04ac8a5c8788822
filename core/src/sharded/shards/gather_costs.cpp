#include "sharded/shards/gather_costs.hpp"

#include <algorithm>
#include <utility>

namespace pliant::sharded {

void GatherCosts::begin_step(bool measures) {
  measures_ = measures;
  gathers_.clear();
}

void GatherCosts::begin_gather(Stream& stream) {
  if (!measures_) return;
  gathers_.push_back({Event(accelerator_, device_, true), Event(accelerator_, device_, true), {}});
  gathers_.back().began.record(stream);
}

void GatherCosts::end_gather(Stream& stream, const std::vector<uint32_t>& parameters) {
  if (!measures_) return;
  gathers_.back().ended.record(stream);
  gathers_.back().parameters = parameters;
}

std::vector<uint64_t> GatherCosts::nanoseconds(const std::vector<uint64_t>& bytes) const {
  std::vector<uint64_t> costs(bytes.size());
  for (const Measured& gather : gathers_) {
    uint64_t all = 0;
    for (const uint32_t parameter : gather.parameters) all += bytes[parameter];
    if (all == 0) continue;
    const double nanoseconds = 1e9 * gather.ended.seconds_since(gather.began);
    for (const uint32_t parameter : gather.parameters) {
      const double share = static_cast<double>(bytes[parameter]) / static_cast<double>(all);
      const auto cost = static_cast<uint64_t>(std::max(nanoseconds * share, 1.0));
      costs[parameter] = costs[parameter] == 0 ? cost : std::min(costs[parameter], cost);
    }
  }
  return costs;
}

}  // namespace pliant::sharded
