// The search for the most efficient batch: a sieve over the batches in floating point, then integers.
//
// With H granules let S = sum of w / (D * q) and L = sum of w * (1 - H / (D * q)), q = ceil(H / D), over all periods D
// with weights w; L is the loss. From H to H + 1 a q changes only where D divides H, and there w / (D * q) falls by
// w * D / (H * (H + D)). With the sum F(H) of those falls:
//   S(H + 1) = S(H) - F(H)        L(H + 1) = L(H) - S(H) + (H + 1) * F(H)
// F is sieved. Nothing cancels: every term is about as large as its sum.
#include "choice.hpp"

#include <algorithm>
#include <numeric>

namespace pliant::elasticity {
namespace {

constexpr size_t kSegment = size_t{1} << 14;  // batches whose falls fit a fast cache
constexpr int64_t kTabulatedFrom = 8;         // shorter periods divide so often that a table would be long
constexpr int64_t kLongestTable = int64_t{1} << 20;
constexpr int64_t kFewestSteps = int64_t{1} << 14;
/// Of the loss of a batch that suits no size: many times what the sieve's rounding can add up to.
constexpr double kMargin = 1e-7;

__extension__ typedef unsigned __int128 Wide;

/// Looks at the batches first..last.
class Sieve {
 public:
  Sieve(int64_t first, int64_t last, const std::vector<Period>& sizes)
      : first_(first), sizes_(sizes), falls_(static_cast<size_t>(last - first + 1), 0.0) {
    const int64_t highest = last / kTabulatedFrom + 1;
    if (highest <= kLongestTable) {
      table_.resize(static_cast<size_t>(highest) + 1);
      for (size_t k = 1; k < table_.size(); ++k) table_[k] = fall(static_cast<double>(k));
    }
    sift();
  }

  /// Those that may have the least loss, ascending.
  [[nodiscard]] std::vector<int64_t> candidates() const {
    // Sums drift; taken afresh this often they stay within the margin, and when sizes are many that is seldom.
    const auto steps = static_cast<size_t>(std::max(kFewestSteps, 32 * static_cast<int64_t>(sizes_.size())));
    std::vector<std::pair<int64_t, double>> near;
    Sums sums;
    double bound = 0;
    for (size_t i = 0; i < falls_.size(); ++i) {
      const int64_t granules = first_ + static_cast<int64_t>(i);
      if (i % steps == 0) sums = sums_at(granules);
      const double least_bound = sums.loss + kMargin * sums.typical;
      if (i == 0 || least_bound < bound) bound = least_bound;
      if (sums.loss <= bound) near.emplace_back(granules, sums.loss);
      sums.loss += static_cast<double>(granules + 1) * falls_[i] - sums.share;
      sums.share -= falls_[i];
    }
    std::vector<int64_t> granules;
    for (const auto& [count, loss] : near) {
      if (loss <= bound) granules.push_back(count);
    }
    return granules;
  }

 private:
  struct Sums {
    double share = 0;    ///< S
    double loss = 0;     ///< L
    double typical = 0;  ///< what L would be if every size idled for half its period
  };

  /// w * D / (H * (H + D)) for H = D * k, times D / w.
  static double fall(double k) { return 1.0 / (k * (k + 1.0)); }

  [[nodiscard]] Sums sums_at(int64_t granules) const {
    Sums sums;
    for (const Period& size : sizes_) {
      const int64_t over = granules % size.length;
      const int64_t idle = over == 0 ? 0 : size.length - over;
      const double taken = static_cast<double>(granules) + static_cast<double>(idle);
      const auto weight = static_cast<double>(size.weight);
      sums.share += weight / taken;
      sums.loss += weight * static_cast<double>(idle) / taken;
      sums.typical += weight * static_cast<double>(size.length) / (2 * taken);
    }
    return sums;
  }

  void sift() {
    const auto width = static_cast<int64_t>(falls_.size());
    std::vector<int64_t> next;  // of each size: its next multiple, counted from first_
    next.reserve(sizes_.size());
    for (const Period& size : sizes_) {
      const int64_t over = first_ % size.length;
      next.push_back(over == 0 ? 0 : size.length - over);
    }
    for (int64_t past = 0; past < width;) {
      past = std::min(width, past + static_cast<int64_t>(kSegment));
      for (size_t i = 0; i < next.size(); ++i) {
        if (next[i] < past) next[i] = sift_one(sizes_[i], next[i], past);
      }
    }
  }

  /// Adds the falls at the multiples from `at` on, up to `past`; returns the next one.
  int64_t sift_one(const Period& size, int64_t at, int64_t past) {
    const int64_t period = size.length;
    int64_t k = (first_ + at) / period;
    const double scale = static_cast<double>(size.weight) / static_cast<double>(period);
    const bool tabulated = period >= kTabulatedFrom && !table_.empty();
    while (at < past) {
      const double one = tabulated ? table_[static_cast<size_t>(k)] : fall(static_cast<double>(k));
      falls_[static_cast<size_t>(at)] += scale * one;
      ++k;
      if (period > past - at) return at + std::min(period, INT64_MAX - at);
      at += period;
    }
    return at;
  }

  int64_t first_;
  const std::vector<Period>& sizes_;
  std::vector<double> falls_;
  std::vector<double> table_;
};

/// Of `granules`, ascending, the one with the least loss, the largest such one; of very many only the last are looked
/// at.
Choice exactly_best(const std::vector<int64_t>& granules, const std::vector<Period>& sizes) {
  const auto affordable = std::max<int64_t>(1, kMostCompared / std::ssize(sizes));
  const auto end = granules.rbegin() + std::min(affordable, std::ssize(granules));
  Choice best{granules.back(), loss_of(granules.back(), sizes)};
  for (auto at = std::next(granules.rbegin()); at != end && best.loss > 0; ++at) {
    const Choice one{*at, loss_of(*at, sizes)};
    if (clearly_less(one.loss, best.loss, sizes)) best = one;
  }
  return best;
}

}  // namespace

Loss loss_of(int64_t granules, const std::vector<Period>& sizes) {
  constexpr int kFirst = 64;
  constexpr int kRest = kLossBits - kFirst;
  Loss sum = 0;
  for (const Period& size : sizes) {
    const auto over = static_cast<uint64_t>(granules % size.length);
    if (over == 0) continue;
    const uint64_t idle = static_cast<uint64_t>(size.length) - over;
    const uint64_t taken = static_cast<uint64_t>(granules) + idle;
    const Wide high = Wide{idle} << kFirst;
    const Wide rest = (high % taken) << kRest;
    sum += ((high / taken << kRest) + rest / taken) * static_cast<uint64_t>(size.weight);
  }
  return sum;
}

bool clearly_less(Loss a, Loss b, const std::vector<Period>& sizes) {
  Loss rounding = 0;
  for (const Period& size : sizes) rounding += static_cast<uint64_t>(size.weight);
  return a + rounding < b;
}

Choice most_efficient(int64_t fewest, int64_t most, const std::vector<Period>& sizes) {
  int64_t unit = 0;
  for (const Period& size : sizes) unit = std::gcd(unit, size.length);
  unit = std::max<int64_t>(unit, 1);
  // Between two multiples of the unit every size gains by more granules: only multiples matter, and the very last.
  std::vector<Period> reduced = sizes;
  for (Period& size : reduced) size.length /= unit;
  const int64_t last = most / unit;
  const int64_t least = fewest / unit + (fewest % unit == 0 ? 0 : 1);
  std::vector<int64_t> granules;
  if (least <= last) {
    const int64_t first = std::max({least, last / 2 + 1, last - kMostBatches + 1, int64_t{1}});
    granules = Sieve(first, last, reduced).candidates();
    for (int64_t& count : granules) count *= unit;
  }
  if (granules.empty() || granules.back() != most) granules.push_back(most);
  return exactly_best(granules, sizes);
}

}  // namespace pliant::elasticity
