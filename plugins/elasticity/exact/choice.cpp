// Chooses the batch that wastes least device time when every world size may share it out.
#include "choice.hpp"

#include <algorithm>
#include <numeric>

#include "../kernel/numbers.hpp"
#include "idle_time.hpp"

namespace pliant::elasticity {
namespace {

constexpr int64_t kBlock = int64_t{1} << 15;  // batches at a time, so that their jumps stay in the cache

/// Sign of a/b - c/d for b, d >= 1, by the continued fractions of both: no product, so nothing can overflow.
int compare_fractions(Wide a, Wide b, Wide c, Wide d) {
  for (int sign = 1;; sign = -sign) {
    const Wide left = a / b;
    const Wide right = c / d;
    if (left != right) return left < right ? -sign : sign;
    a %= b;
    c %= d;
    if (a == 0 || c == 0) return a == c ? 0 : (a == 0 ? -sign : sign);
    std::swap(a, b);
    std::swap(c, d);
  }
}

/// The search in units: one unit is the greatest common divisor of all n * c.
struct InUnits {
  int64_t unit = 1;   ///< granules
  int64_t first = 1;  ///< batches looked at, in units, first..last; none when first > last
  int64_t last = 0;
  PeriodRange range;                     ///< the periods n * c,
  std::vector<WeightedPeriod> weighted;  ///< unless there are some here
  Wide weights = 0;                      ///< their sum
  Wide largest_idle = 0;                 ///< no batch has more
};

InUnits in_units(const WasteSearch& search) {
  std::vector<WeightedSize> sizes = search.weighted;
  if (sizes.empty() && search.low == search.high) sizes.push_back({search.low, 1});
  InUnits units;
  int64_t common = search.step;
  if (sizes.empty()) {
    units.range = {search.low / common, search.high / common};
    units.weights = static_cast<Wide>(count_of(units.range));
    units.largest_idle = units.weights * static_cast<Wide>(units.range.last);
  } else {
    common = sizes.front().world_size;
    for (const WeightedSize& size : sizes) common = std::gcd(common, size.world_size);
    for (const WeightedSize& size : sizes) {
      units.weighted.push_back({size.world_size / common, size.weight});
      units.weights += static_cast<Wide>(size.weight);
      units.largest_idle += static_cast<Wide>(size.weight) * static_cast<Wide>(size.world_size / common);
    }
  }
  units.unit = common * search.granules_at_once;
  units.last = search.most_granules / units.unit;
  const int64_t allowed = (search.fewest_granules - 1) / units.unit + 1;
  units.first = std::max({allowed, units.last / 2 + 1, units.last - kMostBatches + 1});
  return units;
}

/// Sizes, or divisors, that a search has to try.
int64_t tried(const InUnits& units) {
  if (!units.weighted.empty()) return std::ssize(units.weighted);
  return std::min(count_of(units.range), root_of(units.last));
}

template <class Count>
struct Scan {
  int64_t best = 0;  ///< units; 0 = none
  Count best_idle = 0;
  uint64_t next = 0;  ///< the first unit count after those looked at
  Count next_idle = 0;
};

bool no_worse(uint64_t idle, int64_t units, const Scan<uint64_t>& best) {
  return idle * static_cast<uint64_t>(best.best) <= best.best_idle * static_cast<uint64_t>(units);
}
bool no_worse(Wide idle, int64_t units, const Scan<Wide>& best) {
  return compare({units, idle}, {best.best, best.best_idle}) <= 0;
}

template <class Count, class Periods>
Scan<Count> scan(const InUnits& units, const Periods& periods) {
  Scan<Count> found;
  const auto last = static_cast<uint64_t>(units.last);
  found.next = std::min(static_cast<uint64_t>(units.first), last + 1);
  found.next_idle = static_cast<Count>(idle_at(static_cast<int64_t>(found.next), periods));
  const auto weights = static_cast<Count>(units.weights);
  const auto block = static_cast<uint64_t>(std::max(kBlock, std::min(tried(units), kMostBatches)));
  std::vector<Count> jumps;
  while (found.next <= last) {
    jumps.assign(std::min(block, last - found.next + 1), 0);
    add_jumps(jumps, static_cast<int64_t>(found.next), periods);
    for (const Count jump : jumps) {
      const auto here = static_cast<int64_t>(found.next);
      if (found.best == 0 || no_worse(found.next_idle, here, found)) {
        found.best = here;
        found.best_idle = found.next_idle;
      }
      found.next_idle += jump - weights;
      ++found.next;
    }
  }
  return found;
}

template <class Count>
Waste least(const WasteSearch& search, const InUnits& units) {
  const Scan<Count> found =
      units.weighted.empty() ? scan<Count>(units, units.range) : scan<Count>(units, units.weighted);
  const auto granules = [&units](Count idle) { return static_cast<Wide>(idle) * static_cast<Wide>(units.unit); };
  Waste best{found.best * units.unit, granules(found.best_idle)};
  const int64_t short_of_a_unit = (units.unit - search.most_granules % units.unit) % units.unit;
  if (short_of_a_unit == 0) return best;
  const Waste all{search.most_granules, granules(found.next_idle) + static_cast<Wide>(short_of_a_unit) * units.weights};
  return best.granules == 0 || compare(all, best) <= 0 ? all : best;
}

}  // namespace

int compare(const Waste& a, const Waste& b) {
  if (((a.idle | b.idle) >> 64U) == 0) {
    const Wide left = a.idle * static_cast<Wide>(b.granules);
    const Wide right = b.idle * static_cast<Wide>(a.granules);
    return left < right ? -1 : (left > right ? 1 : 0);
  }
  return compare_fractions(a.idle, static_cast<Wide>(a.granules), b.idle, static_cast<Wide>(b.granules));
}

// idle(G) is the sum of weight * (-G mod D) over the periods D = n * c. Not every G needs a look:
//
// The upper half is enough. -kG mod D <= k * (-G mod D), so idle(kG) / kG <= idle(G) / G, and some kG lies there. It
// has room for as many ranks as G, so the lower limit does not matter.
//
// Multiples of the common divisor u of all D are enough, and the largest G. Up to the next multiple of u a G idles
// longer by the sum of all weights for each granule that it lacks.
std::optional<Waste> least_waste(const WasteSearch& search) {
  const int64_t largest = search.weighted.empty() ? search.high : search.weighted.back().world_size;
  if (!checked_product(largest, search.granules_at_once)) return std::nullopt;
  const InUnits units = in_units(search);
  if (tried(units) > kMostTried) return Waste{search.most_granules, 0};
  const bool narrow = units.largest_idle <= UINT64_MAX / (static_cast<Wide>(units.last) + 1);
  return narrow ? least<uint64_t>(search, units) : least<Wide>(search, units);
}

}  // namespace pliant::elasticity
