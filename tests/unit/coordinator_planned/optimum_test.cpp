// How much more is gathered than the least that any coordinator could gather, found by trying everything.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "trainer.hpp"

using namespace pliant::coordinator::planned;
using namespace pliant::coordinator::planned::test;

namespace {

/// The least bytes gathered for the uses in this order, each of one parameter, from nothing whole. What is whole may go
/// when it is not used, and no place counts. O(2^parameters * uses).
uint64_t least(const std::vector<uint64_t>& bytes, const std::vector<uint32_t>& uses, uint64_t budget) {
  std::map<uint32_t, uint64_t> costs{{0, 0}};  // by what is whole, as bits
  for (const uint32_t used : uses) {
    std::map<uint32_t, uint64_t> next;
    for (const auto& [whole, cost] : costs) {
      const uint64_t more = (whole >> used & 1U) != 0 ? 0 : bytes[used];
      for (uint32_t kept = whole;; kept = (kept - 1) & whole) {
        const uint32_t with = kept | 1U << used;
        uint64_t taken = 0;
        for (uint32_t i = 0; i < bytes.size(); ++i) taken += (with >> i & 1U) != 0 ? bytes[i] : 0;
        if (taken <= budget) {
          const auto [at, is_new] = next.emplace(with, cost + more);
          if (!is_new) at->second = std::min(at->second, cost + more);
        }
        if (kept == 0) break;
      }
    }
    costs = std::move(next);
  }
  uint64_t best = UINT64_MAX;
  for (const auto& [whole, cost] : costs) best = std::min(best, cost);
  return best;
}

}  // namespace

TEST_CASE("between two layers and all of them, at most a fiftieth more is gathered than the least, in the median") {
  std::mt19937 drawn(7);
  const auto draw = [&drawn] { return static_cast<uint32_t>(drawn()); };
  std::vector<double> ratios;
  std::vector<double> even;
  for (int model = 0; model < 300; ++model) {
    const uint32_t count = 3 + draw() % 4;
    const bool is_even = model % 2 == 0;
    std::vector<uint64_t> bytes;
    uint64_t all = 0;
    for (uint32_t i = 0; i < count; ++i) {
      bytes.push_back(256 * (is_even ? 4 : 1 + draw() % 8));
      all += bytes.back();
    }
    std::vector<uint64_t> sorted = bytes;
    std::sort(sorted.rbegin(), sorted.rend());
    const uint64_t two = sorted[0] + sorted[1];
    const uint64_t budget = (two + draw() % (all - two + 1)) / 256 * 256;
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < count; ++i) order.push_back(i + 1);
    if (draw() % 2 == 0) std::shuffle(order.begin(), order.end(), drawn);
    const int passes = 1 + static_cast<int>(draw() % 3);
    std::vector<uint32_t> uses;
    for (int pass = 0; pass < passes; ++pass) {
      for (const uint32_t layer : order) uses.push_back(layer - 1);
      for (auto layer = order.rbegin(); layer != order.rend(); ++layer) uses.push_back(*layer - 1);
    }
    Trainer trainer(layers_of(bytes, budget));
    uint64_t made = 0;
    for (int step = 0; step < 4; ++step) {
      made = 0;
      for (int pass = 0; pass < passes; ++pass) made += trainer.pass(order).bytes;
      trainer.end_step();
    }
    const double ratio = static_cast<double>(made) / static_cast<double>(least(bytes, uses, budget));
    (is_even ? even : ratios).push_back(ratio);
  }
  for (auto* const all : {&even, &ratios}) std::sort(all->begin(), all->end());
  MESSAGE("layers of one size: median " << even[even.size() / 2] << ", worst " << even.back() << "; of many: median "
                                        << ratios[ratios.size() / 2] << ", worst " << ratios.back());
  CHECK(even[even.size() / 2] <= 1.0);
  CHECK(ratios[ratios.size() / 2] <= 1.02);
}
