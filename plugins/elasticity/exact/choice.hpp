// Chooses the batch with the highest mean efficiency when every world size may share it out.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace pliant::elasticity {

/// Batches that are looked at, in granules: all that matter up to twice as many, for a multiple of a batch is never
/// less efficient than the batch; above that the largest ones.
constexpr int64_t kMostBatches = int64_t{1} << 18;
/// With more world sizes than this the largest batch is taken.
constexpr int64_t kMostSizes = int64_t{1} << 20;
/// Losses of single sizes that most_efficient computes exactly at most, about half a second of work: of more batches
/// that the sieve cannot tell apart only the largest are compared.
constexpr int64_t kMostCompared = int64_t{1} << 24;

/// A world size n and what it counts. With G granules it takes n * c * ceil(G / (n * c)) granule-times, G of them
/// useful: its efficiency is G over that. c is the granules that a rank's time counts in: 1 when it grows with its
/// rows, those of a micro-batch when a call takes as long half empty. n * c is the size's period.
struct Period {
  int64_t length = 1;  ///< n * c
  int64_t weight = 1;  ///< >= 1; those of all sizes add up to less than 2^41
};

/// 1 - efficiency, times weight, summed over all sizes, in units of 2^-kLossBits. Every size rounds down.
__extension__ typedef unsigned __int128 Loss;
constexpr int kLossBits = 80;

struct Choice {
  int64_t granules = 0;  ///< G
  Loss loss = 0;
};

/// The loss of `granules` >= 1. O(sizes).
Loss loss_of(int64_t granules, const std::vector<Period>& sizes);

/// Whether `a` wastes less than `b` by more than the rounding of `sizes` sizes of `weights` in all, which is less than
/// one part in 10^12.
bool clearly_less(Loss a, Loss b, const std::vector<Period>& sizes);

/// Of fewest <= G <= most the G with the least loss; of those that no rounding tells apart the largest. The answer is a
/// function of integers: floating point only picks the few batches that are then compared exactly. `sizes` is not
/// empty. O(sizes + batches * log(sizes)).
Choice most_efficient(int64_t fewest, int64_t most, const std::vector<Period>& sizes);

}  // namespace pliant::elasticity
