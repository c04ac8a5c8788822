// How long devices idle, for one batch after the other. Unit of G and of the periods: one common divisor of all
// periods.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "choice.hpp"

namespace pliant::elasticity {

/// World size times c, in units.
struct WeightedPeriod {
  int64_t length = 1;
  int64_t weight = 1;
};

/// Periods first, first + 1, ..., last, all with weight 1.
struct PeriodRange {
  int64_t first = 1;
  int64_t last = 1;
};

inline int64_t count_of(const PeriodRange& periods) {
  return periods.last - periods.first + 1;
}

/// The least integer whose square is above n; at most one more where n is past 2^53.
inline int64_t root_of(int64_t n) {
  return static_cast<int64_t>(std::sqrt(static_cast<double>(n))) + 1;
}

/// Sum of weight * (-g mod period): what world sizes idle with g >= 1 units.
Wide idle_at(int64_t g, const std::vector<WeightedPeriod>& periods);
/// O(min(periods, root of g)).
Wide idle_at(int64_t g, const PeriodRange& periods);

template <class Count>
void add_jumps_of(std::vector<Count>& jumps, int64_t first, int64_t period, int64_t weight) {
  const auto length = static_cast<uint64_t>(period);
  const Count rise = static_cast<Count>(weight) * static_cast<Count>(length);
  const uint64_t past = static_cast<uint64_t>(first) % length;
  for (uint64_t at = past == 0 ? 0 : length - past; at < jumps.size(); at += length) jumps[at] += rise;
}

/// For e in [from, to]: jumps at d * e rise by `fixed` and by `slope` (0 or 1) times e.
template <class Count>
void add_jumps_at(std::vector<Count>& jumps, int64_t first, int64_t d, int64_t from, int64_t to, int64_t fixed,
                  int64_t slope) {
  if (from > to || (fixed == 0 && slope == 0)) return;
  Count* at = jumps.data() + (d * from - first);
  int64_t rise = fixed + slope * from;
  for (int64_t e = from;; at += d, rise += slope) {
    *at += static_cast<Count>(rise);
    if (e++ == to) return;
  }
}

/// Adds to jumps[i] the sum of weight * period over the periods that divide first + i. From g to g + 1 the idle time
/// falls by the sum of all weights, and rises by the jump at g: a full round ends there and an idle one begins.
template <class Count>
void add_jumps(std::vector<Count>& jumps, int64_t first, const std::vector<WeightedPeriod>& periods) {
  for (const WeightedPeriod& period : periods) add_jumps_of(jumps, first, period.length, period.weight);
}

/// O(min(periods, root of last) + jumps * log): where the periods are many, by pairs d * e = g with d <= e. `first` is
/// below 2^62 then.
template <class Count>
void add_jumps(std::vector<Count>& jumps, int64_t first, const PeriodRange& periods) {
  const int64_t last = first + (std::ssize(jumps) - 1);
  if (count_of(periods) < root_of(last)) {
    for (int64_t n = periods.first; n <= periods.last; ++n) add_jumps_of(jumps, first, n, 1);
    return;
  }
  for (int64_t d = 1; d <= last / d; ++d) {
    const int64_t from = std::max(d, (first + d - 1) / d);
    const int64_t to = last / d;
    const int64_t own = periods.first <= d && d <= periods.last ? d : 0;
    const int64_t low = std::clamp(std::max(periods.first, d + 1), from, std::max(from, to + 1));
    const int64_t high = std::clamp(periods.last, low - 1, std::max(low - 1, to));
    add_jumps_at(jumps, first, d, from, low - 1, own, 0);
    add_jumps_at(jumps, first, d, low, high, own, 1);
    add_jumps_at(jumps, first, d, high + 1, to, own, 0);
  }
}

}  // namespace pliant::elasticity
