// Chooses the batch that wastes least device time when every world size may share it out.
#include "choice.hpp"

#include <algorithm>

#include "../kernel/numbers.hpp"

namespace pliant::elasticity {
namespace {

using Wide = Waste::Wide;

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

}  // namespace

int compare(const Waste& a, const Waste& b) {
  if (((a.idle | b.idle) >> 64U) == 0) {
    const Wide left = a.idle * static_cast<Wide>(b.granules);
    const Wide right = b.idle * static_cast<Wide>(a.granules);
    return left < right ? -1 : (left > right ? 1 : 0);
  }
  return compare_fractions(a.idle, static_cast<Wide>(a.granules), b.idle, static_cast<Wide>(b.granules));
}

// idle(G) = sum of weight * (-G mod D) with D = world size * c. From G to G + 1 every term falls by 1, except where D
// divides G: those rise by D - 1. So one sum and a sieve give idle at every G of the window.
std::optional<Waste> least_waste(const Search& search) {
  const int64_t first = std::max(search.fewest_granules, search.most_granules - kWindow + 1);
  const auto width = static_cast<size_t>(search.most_granules - first + 1);
  std::vector<Wide> rises(width, 0);
  Wide weights = 0;
  Waste here{first, 0};
  for (const WeightedSize& size : search.sizes) {
    const std::optional<int64_t> product = checked_product(size.world_size, search.granules_at_once);
    if (!product) return std::nullopt;
    const int64_t period = *product;
    const auto weight = static_cast<Wide>(size.weight);
    const int64_t over = first % period;
    weights += weight;
    here.idle += weight * static_cast<Wide>(over == 0 ? 0 : period - over);
    const int64_t to_multiple = over == 0 ? 0 : period - over;
    for (auto at = static_cast<uint64_t>(to_multiple); at < width; at += static_cast<uint64_t>(period)) {
      rises[at] += weight * static_cast<Wide>(period);
    }
  }
  Waste best = here;
  for (size_t i = 1; i < width; ++i) {
    here.idle += rises[i - 1];
    here.idle -= weights;
    ++here.granules;
    if (compare(here, best) <= 0) best = here;
  }
  return best;
}

}  // namespace pliant::elasticity
