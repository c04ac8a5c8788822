// Idle time of one batch over all world sizes.
#include "idle_time.hpp"

namespace pliant::elasticity {

Wide idle_at(int64_t g, const std::vector<WeightedPeriod>& periods) {
  Wide idle = 0;
  for (const WeightedPeriod& period : periods) {
    const int64_t over = g % period.length;
    idle += static_cast<Wide>(over == 0 ? 0 : period.length - over) * static_cast<Wide>(period.weight);
  }
  return idle;
}

// -g mod n = n * ceil(g / n) - g, and ceil(g / n) = floor((g - 1) / n) + 1 takes few values: one division for each n up
// to the root, one for each value beyond.
Wide idle_at(int64_t g, const PeriodRange& periods) {
  Wide busy = 0;  // and idle
  int64_t n = periods.first;
  for (; n <= periods.last && n <= (g - 1) / n; ++n) busy += static_cast<Wide>((g - 1) / n + 1) * static_cast<Wide>(n);
  int64_t rounds = n <= periods.last ? (g - 1) / n : 0;  // full ones, before the last
  for (; n <= periods.last; --rounds) {
    const int64_t to = rounds == 0 ? periods.last : std::min(periods.last, (g - 1) / rounds);
    if (to < n) continue;
    const Wide sum = static_cast<Wide>(n) + static_cast<Wide>(to);
    busy += sum * static_cast<Wide>(to - n + 1) / 2 * static_cast<Wide>(rounds + 1);
    n = to + 1;
  }
  return busy - static_cast<Wide>(g) * static_cast<Wide>(periods.last - periods.first + 1);
}

}  // namespace pliant::elasticity
