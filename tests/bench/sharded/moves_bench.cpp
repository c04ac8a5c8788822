// Bytes that planned moves send at changes of the world size, against the bound, and what a plan costs. Prints a table.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "sharded/moves.hpp"

using namespace pliant;

namespace {

constexpr int64_t kStateBytes = 12;  // of an element: weight and two moments, f32

/// Of 38M elements in so many parameters.
constexpr int32_t kParameters = 64;
sharded::FlatLayout layout() {
  return or_throw(sharded::FlatLayout::create(38'000'000));
}

void measure(const sharded::FlatLayout& model, int32_t before, int32_t after) {
  std::vector<int32_t> ends;
  for (int32_t i = 1; i <= kParameters; ++i) {
    ends.push_back(static_cast<int32_t>(int64_t{model.chunks()} * i / kParameters));
  }
  const auto map = or_throw(sharded::Ownership::deal(model.chunks(), before, 0, ends));
  std::vector<int32_t> becomes;
  for (int32_t rank = 0; rank < before; ++rank) becomes.push_back(rank < after ? rank : sharded::kLeaves);
  constexpr size_t kTimes = 31;
  std::vector<double> micros;
  sharded::MovePlan plan;
  for (size_t i = 0; i < kTimes; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    plan = or_throw(sharded::plan_moves(map, after, becomes, ends));
    micros.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(micros.begin(), micros.end());
  const auto larger = static_cast<double>(std::max(before, after));
  const auto elements = static_cast<double>(int64_t{model.chunks()} * model.chunk_elements());
  const double bound = elements * std::abs(before - after) / larger * kStateBytes;
  const auto sent = static_cast<double>(plan.chunks_moved() * model.chunk_elements() * kStateBytes);
  fmt::print("{:>4} to {:>3} {:>12.0f} {:>12.0f} {:>8.5f} {:>7} {:>7} {:>10.1f}\n", before, after, sent, bound,
             sent / bound, plan.moves.size(), plan.to.runs().size(), micros[kTimes / 2]);
}

}  // namespace

int main() {
  const sharded::FlatLayout model = layout();
  fmt::print("38,000,000 elements with {} bytes each in {} chunks of {} elements\n", kStateBytes, model.chunks(),
             model.chunk_elements());
  fmt::print("  change   bytes sent    the bound    ratio   moves    runs  plan in us\n");
  for (const auto& [before, after] : std::vector<std::pair<int32_t, int32_t>>{
           {8, 7}, {7, 8}, {4, 3}, {3, 4}, {1, 64}, {64, 1}, {32, 64}, {64, 32}, {63, 64}, {64, 63}}) {
    measure(model, before, after);
  }
  return EXIT_SUCCESS;
}
