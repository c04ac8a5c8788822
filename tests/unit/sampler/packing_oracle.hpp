// Simple packings to hold the samplers to: loops over sequences as the textbooks have them, and brute force.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace pliant::test {

using Packs = std::vector<std::vector<int64_t>>;

/// Best-fit-decreasing, sequence by sequence: sizes of the packs.
inline Packs best_fit_by_loop(std::vector<int32_t> sizes, int64_t budget, size_t most_in_pack) {
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  Packs packs;
  std::vector<int64_t> rooms;
  for (const int64_t size : sizes) {
    size_t best = packs.size();
    for (size_t i = 0; i < packs.size(); ++i) {
      const bool open = rooms[i] >= size && (most_in_pack == 0 || packs[i].size() < most_in_pack);
      if (open && (best == packs.size() || rooms[i] < rooms[best])) best = i;
    }
    if (best == packs.size()) {
      packs.emplace_back();
      rooms.push_back(budget);
    }
    packs[best].push_back(size);
    rooms[best] -= size;
  }
  return packs;
}

/// The fewest packs there can be, by trying: a dozen sizes at most.
inline size_t fewest_by_trying(std::vector<int32_t> sizes, int64_t budget, size_t most_in_pack) {
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  size_t best = sizes.size();
  struct Open {
    int64_t room;
    size_t sequences;
  };
  std::vector<Open> packs;
  const std::function<void(size_t)> place = [&](size_t i) {
    if (packs.size() >= best) return;
    if (i == sizes.size()) {
      best = packs.size();
      return;
    }
    for (size_t p = 0; p < packs.size(); ++p) {
      if (packs[p].room < sizes[i] || (most_in_pack != 0 && packs[p].sequences >= most_in_pack)) continue;
      packs[p].room -= sizes[i];
      ++packs[p].sequences;
      place(i + 1);
      packs[p].room += sizes[i];
      --packs[p].sequences;
    }
    packs.push_back({budget - sizes[i], 1});
    place(i + 1);
    packs.pop_back();
  };
  place(0);
  return best;
}

/// The fewest packs there can be where a pack whose longest has length l holds up to capacity(l), by trying: eight
/// lengths at most.
template <class Capacity>
size_t fewest_padded_by_trying(const std::vector<int64_t>& lengths, Capacity&& capacity) {
  struct Open {
    int64_t longest;
    size_t sequences;
  };
  std::vector<Open> packs;
  size_t best = lengths.size();
  const std::function<void(size_t)> place = [&](size_t i) {
    if (i == lengths.size()) {
      best = std::min(best, packs.size());
      return;
    }
    for (size_t p = 0; p < packs.size(); ++p) {
      const Open before = packs[p];
      const int64_t longest = std::max(before.longest, lengths[i]);
      if (before.sequences + 1 > capacity(longest)) continue;
      packs[p] = {longest, before.sequences + 1};
      place(i + 1);
      packs[p] = before;
    }
    packs.push_back({lengths[i], 1});
    place(i + 1);
    packs.pop_back();
  };
  place(0);
  return best;
}

/// One pack at a time, in order.
inline Packs next_fit_by_loop(const std::vector<int32_t>& sizes, int64_t budget, size_t most_in_pack) {
  Packs packs;
  int64_t room = 0;
  for (const int64_t size : sizes) {
    if (packs.empty() || size > room || (most_in_pack != 0 && packs.back().size() == most_in_pack)) {
      packs.emplace_back();
      room = budget;
    }
    packs.back().push_back(size);
    room -= size;
  }
  return packs;
}

}  // namespace pliant::test
