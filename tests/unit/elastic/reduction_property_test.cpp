// Reductions of random batches at random world sizes, against the definition.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "elastic/reduction.hpp"
#include "rank_group.hpp"

namespace pliant::elastic {
namespace {

/// What the granules of a batch gave.
struct Granules {
  int64_t rows = 0;
  int64_t granule = 1;
  size_t gradient_size = 0;
  std::vector<std::vector<float>> gradients;
  std::vector<double> losses;
  std::vector<int64_t> tokens;
  std::vector<uint64_t> digests;

  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(gradients.size()); }
};

/// Magnitudes from 2^-20 to 2^20, so that another order of additions shows.
Granules random_granules(int64_t count, int64_t granule, int64_t short_by, size_t gradient_size, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(-20, 20);
  Granules made;
  made.granule = granule;
  made.rows = count * granule - short_by;
  made.gradient_size = gradient_size;
  for (int64_t g = 0; g < count; ++g) {
    std::vector<float> gradient(gradient_size);
    for (float& value : gradient) value = std::ldexp(mantissa(random), exponent(random));
    made.gradients.push_back(std::move(gradient));
    made.losses.push_back(std::ldexp(static_cast<double>(mantissa(random)), exponent(random)));
    made.tokens.push_back(static_cast<int64_t>(random() % 5000));
    made.digests.push_back((uint64_t{random()} << 32) | random());
  }
  return made;
}

/// The sum over node (level, index), straight from the definition.
template <class Number, class Leaf>
Number tree_sum(int64_t granules, int64_t level, int64_t index, const Leaf& leaf) {
  if (level == 0) return leaf(static_cast<size_t>(index));
  const Number left = tree_sum<Number>(granules, level - 1, 2 * index, leaf);
  if (((2 * index + 1) << (level - 1)) >= granules) return left;
  const Number right = tree_sum<Number>(granules, level - 1, 2 * index + 1, leaf);
  return left + right;
}

template <class Number, class Leaf>
Number tree_sum(int64_t granules, const Leaf& leaf) {
  int64_t top = 0;
  while ((int64_t{1} << top) < granules) ++top;
  return tree_sum<Number>(granules, top, 0, leaf);
}

/// A result that outlives the reduction.
struct Outcome {
  std::vector<float> gradient;
  double loss_sum = 0;
  int64_t loss_tokens = 0;
  uint64_t digest = 0;
};

/// What each rank has at the end. `steps` times the same step, with the same objects.
std::vector<Outcome> reduce_at(const Accelerator& accelerator, const Granules& granules, bool deterministic,
                               const Assignment& assignment, int steps = 1) {
  const auto world_size = static_cast<int32_t>(assignment.world_size());
  std::vector<Outcome> outcomes(static_cast<size_t>(world_size));
  test::run_healthy_ranks(accelerator, world_size, [&](int32_t rank, Communicator& communicator, Stream& stream) {
    Stream program(accelerator, 0);
    GradientReduction reduction(accelerator, 0, program, granules.gradient_size, deterministic);
    for (int step = 0; step < steps; ++step) {
      reduction.begin(granules.rows, granules.granule, assignment, rank);
      for (const RowRange& rows : assignment.of(rank)) {
        const auto g = static_cast<size_t>(rows.first / granules.granule);
        reduction.add(rows, granules.losses[g], granules.tokens[g], granules.digests[g], granules.gradients[g]);
      }
      const ReductionResult result = reduction.reduce(communicator, stream, {});
      outcomes[static_cast<size_t>(rank)] = {
          {result.gradient.begin(), result.gradient.end()}, result.loss_sum, result.loss_tokens, result.digest};
    }
  });
  return outcomes;
}

/// Runs of granules, as ranks share them without a balancer.
Assignment in_runs(const Granules& granules, int32_t world_size) {
  return share_out(granules.rows, {.world_size = world_size, .granule = granules.granule, .deterministic = true});
}

/// Each granule on any rank; a rank may have none.
Assignment scattered(const Granules& granules, size_t world_size) {
  std::vector<std::vector<RowRange>> of_rank(world_size);
  for (const RowRange& granule : in_runs(granules, 1).blocks) {
    of_rank[*rc::gen::inRange<size_t>(0, world_size)].push_back(granule);
  }
  Assignment made;
  for (const auto& own : of_rank) {
    made.blocks.insert(made.blocks.end(), own.begin(), own.end());
    made.offsets.push_back(made.blocks.size());
  }
  return made;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return false;
  }
  return true;
}

Granules any_granules() {
  const auto granule = *rc::gen::inRange<int64_t>(1, 5);
  const auto count = *rc::gen::inRange<int64_t>(1, 65);
  const auto short_by = *rc::gen::inRange<int64_t>(0, granule);
  const auto gradient_size = *rc::gen::inRange<size_t>(1, 3001);
  return random_granules(count, granule, short_by, gradient_size, *rc::gen::arbitrary<uint32_t>());
}

TEST_CASE("deterministic sums follow the tree bit by bit at every world size and for every assignment") {
  const Accelerator accelerator = test::open_host();
  const bool held = rc::check([&] {
    const Granules granules = any_granules();
    const auto world_size = *rc::gen::inRange<int32_t>(1, 17);
    const bool balanced = *rc::gen::arbitrary<bool>();
    const Assignment assignment =
        balanced ? scattered(granules, static_cast<size_t>(world_size)) : in_runs(granules, world_size);
    std::vector<float> expected(granules.gradient_size);
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] = tree_sum<float>(granules.count(), [&](size_t g) { return granules.gradients[g][i]; });
    }
    const auto loss = tree_sum<double>(granules.count(), [&](size_t g) { return granules.losses[g]; });
    int64_t tokens = 0;
    for (const int64_t count : granules.tokens) tokens += count;
    uint64_t digest = 0;
    for (const uint64_t part : granules.digests) digest += part;
    for (const Outcome& outcome : reduce_at(accelerator, granules, true, assignment)) {
      RC_ASSERT(same_bits(outcome.gradient, expected));
      RC_ASSERT(std::bit_cast<uint64_t>(outcome.loss_sum) == std::bit_cast<uint64_t>(loss));
      RC_ASSERT(outcome.loss_tokens == tokens);
      RC_ASSERT(outcome.digest == digest);
    }
  });
  CHECK(held);
}

TEST_CASE("fast sums are right within rounding and the same on every rank") {
  const Accelerator accelerator = test::open_host();
  const bool held = rc::check([&] {
    const Granules granules = any_granules();
    const auto world_size = *rc::gen::inRange<int32_t>(1, 10);
    const auto outcomes = reduce_at(accelerator, granules, false, scattered(granules, static_cast<size_t>(world_size)));
    for (size_t i = 0; i < granules.gradient_size; ++i) {
      double exact = 0;
      double magnitude = 0;
      for (const auto& gradient : granules.gradients) {
        exact += static_cast<double>(gradient[i]);
        magnitude += std::abs(static_cast<double>(gradient[i]));
      }
      const double bound = magnitude * static_cast<double>(granules.count()) * 0x1p-24;
      RC_ASSERT(std::abs(static_cast<double>(outcomes[0].gradient[i]) - exact) <= bound);
    }
    uint64_t digest = 0;
    for (const uint64_t part : granules.digests) digest += part;
    for (const Outcome& outcome : outcomes) {
      RC_ASSERT(same_bits(outcome.gradient, outcomes[0].gradient));
      RC_ASSERT(outcome.digest == digest);
      RC_ASSERT(std::bit_cast<uint64_t>(outcome.loss_sum) == std::bit_cast<uint64_t>(outcomes[0].loss_sum));
    }
  });
  CHECK(held);
}

TEST_CASE("a gradient of many slices is the same alone, in runs and in turn, step after step") {
  const Accelerator accelerator = test::open_host();
  const Granules granules = random_granules(13, 2, 1, 700001, 7);
  const Outcome alone = reduce_at(accelerator, granules, true, in_runs(granules, 1)).front();
  for (const Outcome& outcome : reduce_at(accelerator, granules, true, in_runs(granules, 3), 2)) {
    CHECK(same_bits(outcome.gradient, alone.gradient));
    CHECK(outcome.loss_sum == alone.loss_sum);
  }
  Assignment in_turn = in_runs(granules, 1);
  std::stable_partition(in_turn.blocks.begin(), in_turn.blocks.end(),
                        [](const RowRange& rows) { return rows.first / 2 % 2 == 0; });
  in_turn.offsets = {0, 7, 13};
  for (const Outcome& outcome : reduce_at(accelerator, granules, true, in_turn, 2)) {
    CHECK(same_bits(outcome.gradient, alone.gradient));
    CHECK(outcome.loss_sum == alone.loss_sum);
  }
}

}  // namespace
}  // namespace pliant::elastic
