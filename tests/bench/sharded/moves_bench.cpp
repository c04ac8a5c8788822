// Bytes that planned moves send at changes of the world size, against the bound, and what a plan costs. Prints a table.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "sharded/shards/moves.hpp"
#include "unit/sharded/chunks_moved.hpp"

using namespace pliant;

namespace {

constexpr int64_t kStateBytes = 12;  // of an element: weight and two moments, f32

/// Of 38M elements in so many parameters.
constexpr int32_t kParameters = 64;
sharded::FlatLayout layout() {
  return or_throw(sharded::FlatLayout::create(38'000'000));
}

std::vector<int32_t> ends_of(int32_t chunks, int32_t parameters) {
  std::vector<int32_t> ends;
  for (int32_t i = 1; i <= parameters; ++i) ends.push_back(static_cast<int32_t>(int64_t{chunks} * i / parameters));
  return ends;
}

/// What becomes of each rank where only the last ones leave, or others join.
std::vector<int32_t> staying(int32_t before, int32_t after) {
  std::vector<int32_t> becomes;
  for (int32_t rank = 0; rank < before; ++rank) becomes.push_back(rank < after ? rank : sharded::kLeaves);
  return becomes;
}

/// The microseconds of plans of one change, ascending, and the last plan.
struct Timed {
  std::vector<double> micros;
  sharded::MovePlan plan;

  [[nodiscard]] double median() const { return micros[micros.size() / 2]; }
};
Timed timed_plan(const sharded::Ownership& map, int32_t after, const std::vector<int32_t>& ends) {
  const std::vector<int32_t> becomes = staying(map.world_size(), after);
  Timed timed;
  for (size_t i = 0; i < 31; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    timed.plan = or_throw(sharded::plan_moves(map, after, becomes, ends));
    timed.micros.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(timed.micros.begin(), timed.micros.end());
  return timed;
}

void measure(const sharded::FlatLayout& model, int32_t before, int32_t after) {
  const std::vector<int32_t> ends = ends_of(model.chunks(), kParameters);
  const auto map = or_throw(sharded::Ownership::deal(model.chunks(), before, 0, ends));
  const Timed timed = timed_plan(map, after, ends);
  const sharded::MovePlan& plan = timed.plan;
  const auto larger = static_cast<double>(std::max(before, after));
  const auto elements = static_cast<double>(int64_t{model.chunks()} * model.chunk_elements());
  const double bound = elements * std::abs(before - after) / larger * kStateBytes;
  const auto sent = static_cast<double>(pliant_test::chunks_moved(plan) * model.chunk_elements() * kStateBytes);
  fmt::print("{:>4} to {:>3} {:>12.0f} {:>12.0f} {:>8.5f} {:>7} {:>7} {:>10.1f}\n", before, after, sent, bound,
             sent / bound, plan.moves.size(), plan.to.runs().size(), timed.median());
}

/// A map that has been through changes, whose runs are many and short, and what its next plan takes, a chunk.
void measure_growth(int32_t chunks) {
  constexpr int32_t kWorlds[] = {5, 64, 17, 33, 8, 50, 7, 29, 64, 63, 40, 64, 21, 64, 2, 61, 9, 64};
  const std::vector<int32_t> ends = ends_of(chunks, kParameters);
  auto map = or_throw(sharded::Ownership::deal(chunks, 8, 0, ends));
  for (const int32_t world : kWorlds) {
    map = or_throw(sharded::plan_moves(map, world, staying(map.world_size(), world), ends)).to;
  }
  const size_t runs = map.runs().size();
  const Timed timed = timed_plan(map, 63, ends);
  fmt::print("{:>9} {:>8} {:>8} {:>11.1f} {:>11.2f} {:>9.1f}\n", chunks, runs, timed.plan.moves.size(), timed.median(),
             timed.median() * 1000 / chunks, timed.median() * 1000 / static_cast<double>(runs));
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
  fmt::print("\n64 to 63 ranks, of a map that has been through 18 changes\n");
  fmt::print("   chunks     runs    moves  plan in us  ns a chunk  ns a run\n");
  for (int32_t chunks = 1 << 12; chunks <= sharded::FlatLayout::kMostChunks; chunks *= 4) measure_growth(chunks);
  return EXIT_SUCCESS;
}
