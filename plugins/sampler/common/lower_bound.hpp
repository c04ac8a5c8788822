// Lower bounds on the number of packs: no packing of the same sequences has fewer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pliant::sampler {

namespace detail {

__extension__ typedef unsigned __int128 Wide;

/// Sums from the front over sizes in ascending order: of sequences, and of tokens.
struct RunningSums {
  std::vector<uint64_t> sequences{0};
  std::vector<Wide> tokens{0};

  RunningSums(std::span<const int64_t> values, std::span<const uint64_t> counts) {
    for (size_t i = 0; i < values.size(); ++i) {
      sequences.push_back(sequences.back() + counts[i]);
      tokens.push_back(tokens.back() + static_cast<Wide>(static_cast<uint64_t>(values[i])) * counts[i]);
    }
  }
};

inline uint64_t packs_for(Wide tokens, Wide budget) {
  return static_cast<uint64_t>((tokens + budget - 1) / budget);
}

}  // namespace detail

/// The largest of: all tokens over the budget; for each size the sequences that are no smaller over the number of them
/// that a pack has room for, at most most_in_pack (0 = no limit); and Martello and Toth's L2 (Discrete Applied
/// Mathematics 28, 1990): for each threshold t up to half the budget, sequences above budget - t need a pack each and
/// leave no room for one of t or more, those above half the budget need a pack each, and what of the sequences from t
/// up to half does not fit into the room that they leave needs packs of its own. `values`: sizes 1 .. budget,
/// ascending, each with its number. O(different sizes x log).
inline uint64_t fewest_packs(std::span<const int64_t> values, std::span<const uint64_t> counts, int64_t budget,
                             uint64_t most_in_pack) {
  using detail::Wide;
  if (values.empty()) return 0;
  const detail::RunningSums sums(values, counts);
  const Wide whole = static_cast<uint64_t>(budget);
  const auto above = [&](int64_t size) {
    return static_cast<size_t>(std::upper_bound(values.begin(), values.end(), size) - values.begin());
  };
  uint64_t best = detail::packs_for(sums.tokens.back(), whole);
  const uint64_t all = sums.sequences.back();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto fit = static_cast<uint64_t>(budget / values[i]);
    best = std::max(best,
                    detail::packs_for(all - sums.sequences[i], most_in_pack == 0 ? fit : std::min(fit, most_in_pack)));
  }
  const size_t half = above(budget / 2);
  best = std::max(best, all - sums.sequences[half]);
  for (size_t t = 0; t < half; ++t) {
    const size_t alone = above(budget - values[t]);
    const uint64_t large = sums.sequences[alone] - sums.sequences[half];
    const Wide room = whole * large - (sums.tokens[alone] - sums.tokens[half]);
    const Wide small = sums.tokens[half] - sums.tokens[t];
    const uint64_t more = small > room ? detail::packs_for(small - room, whole) : 0;
    best = std::max(best, all - sums.sequences[half] + more);
  }
  return best;
}

/// The fewest packs for sequences that are padded to the longest of their pack, exactly: a pack whose longest sequence
/// has length l holds up to capacity(l) >= 1, which does not grow with l. `lengths` ascend, each with its number.
/// O(different lengths).
///
/// Taking the longest sequence left and as many of the next longest as its pack holds is optimal. In any packing, look
/// at the pack P of the longest sequence. While a sequence y outside P is longer than an x in P other than the longest,
/// exchange them; while P has room, move a sequence into it. P keeps its longest sequence and so its capacity; the
/// longest of the other pack does not grow, so its capacity does not fall, nor does its number rise. No pack is added,
/// and P has become the pack that was taken. The rest follows by induction.
template <class Capacity>
uint64_t fewest_padded_packs(std::span<const int64_t> lengths, std::span<const uint64_t> counts, Capacity&& capacity) {
  uint64_t packs = 0;
  uint64_t room = 0;  // sequences that the last pack still takes
  for (size_t i = lengths.size(); i-- > 0;) {
    const uint64_t left = counts[i] - std::min(counts[i], room);
    room -= counts[i] - left;
    if (left == 0) continue;
    const uint64_t each = capacity(lengths[i]);
    const uint64_t more = left / each + (left % each == 0 ? 0 : 1);
    packs += more;
    room = left % each == 0 ? 0 : each - left % each;
  }
  return packs;
}

}  // namespace pliant::sampler
