// One sweep over the trace.
#include "reuse.hpp"

#include <algorithm>
#include <limits>

namespace pliant::coordinator::zero3 {
namespace {

uint64_t saturating_sum(uint64_t a, uint64_t b) {
  return a > std::numeric_limits<uint64_t>::max() - b ? std::numeric_limits<uint64_t>::max() : a + b;
}

}  // namespace

void ReuseTable::build(const Layout& layout, const std::vector<uint32_t>& trace,
                       const std::vector<sdk::Parameter>& parameters, Reach reach) {
  passed_.assign(1, 0);
  visits_of_.assign(parameters.size(), {});
  std::vector<std::vector<uint32_t>> lists(layout.module_count());
  std::vector<bool> listed(layout.module_count());
  for (uint32_t visit = 0; visit < trace.size(); ++visit) {
    const uint32_t module = trace[visit];
    if (!listed[module]) {
      listed[module] = true;
      lists[module] = reach == Reach::kUsed ? layout.used(module) : layout.listed(module, reach == Reach::kDeep);
    }
    uint64_t elements = 0;
    for (const uint32_t parameter : lists[module]) {
      elements = saturating_sum(elements, parameters[parameter].elements);
      std::vector<uint32_t>& visits = visits_of_[parameter];
      if (visits.empty() || visits.back() != visit) visits.push_back(visit);
    }
    passed_.push_back(saturating_sum(passed_.back(), elements));
  }
  ready_ = true;
}

uint64_t ReuseTable::next_use(uint32_t parameter, uint64_t visit) const {
  const std::vector<uint32_t>& visits = visits_of_[parameter];
  const auto next = std::lower_bound(visits.begin(), visits.end(), visit);
  return next == visits.end() ? std::numeric_limits<uint64_t>::max() : *next;
}

bool ReuseTable::reused(uint32_t parameter, uint64_t visit, uint64_t distance) const {
  const uint64_t next = next_use(parameter, visit);
  return next != std::numeric_limits<uint64_t>::max() && passed_[next] - passed_[visit] < distance;
}

}  // namespace pliant::coordinator::zero3
