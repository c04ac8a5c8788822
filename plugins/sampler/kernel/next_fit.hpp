// Next fit: fills one pack at a time, in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pliant::sampler {

namespace detail {

struct FillState {
  int64_t room = 0;
  uint64_t in_pack = 0;
};

/// Notes in `ends` where packs end between `begin` and `end`. Whether a sequence still fits is as good as random in
/// short packs, where a wrong guess costs more than the work (kBranch = false), and nearly always true in long ones.
template <bool kBranch, bool kCounted>
size_t next_fit_block(const int32_t* sizes, size_t begin, size_t end, int64_t budget, uint64_t most, FillState& fill,
                      uint64_t* ends) {
  int64_t room = fill.room;
  uint64_t in_pack = fill.in_pack;
  size_t packs = 0;
  for (size_t i = begin; i < end; ++i) {
    const int64_t left = room - sizes[i];
    uint64_t closes = static_cast<uint64_t>(left) >> 63U;
    if constexpr (kCounted) {
      closes |= in_pack == most ? 1U : 0U;
      in_pack = (in_pack & (closes - 1)) + 1;
    }
    if constexpr (kBranch) {
      room = left;
      if (closes == 0) continue;
      ends[packs++] = i;
      room = budget - sizes[i];
    } else {
      ends[packs] = i;
      packs += closes;
      room = left + static_cast<int64_t>(static_cast<uint64_t>(budget - room) & (uint64_t{0} - closes));
    }
  }
  fill = {room, in_pack};
  return packs;
}

template <bool kCounted>
void next_fit(std::span<const int32_t> sizes, int64_t budget, uint64_t most, std::vector<uint64_t>& offsets) {
  constexpr size_t kBlock = 4096;  // so that the ends are written where the cache has them
  constexpr size_t kShortPack = 16;
  std::vector<uint64_t> ends(kBlock + 1);
  FillState fill{budget, 0};
  size_t packs = kBlock;
  for (size_t begin = 0; begin < sizes.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, sizes.size());
    const auto block = packs > kBlock / kShortPack ? next_fit_block<false, kCounted> : next_fit_block<true, kCounted>;
    packs = block(sizes.data(), begin, end, budget, most, fill, ends.data());
    offsets.insert(offsets.end(), ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(packs));
  }
  offsets.push_back(sizes.size());
}

}  // namespace detail

/// Sequences `sizes` (1 .. budget) in order; appends to `offsets` (which begins with 0) where each pack ends. O(n).
/// most_in_pack 0 = no limit.
inline void next_fit(std::span<const int32_t> sizes, int64_t budget, uint64_t most_in_pack,
                     std::vector<uint64_t>& offsets) {
  if (sizes.empty()) return;
  if (most_in_pack == 0) {
    detail::next_fit<false>(sizes, budget, 0, offsets);
  } else {
    detail::next_fit<true>(sizes, budget, most_in_pack, offsets);
  }
}

}  // namespace pliant::sampler
