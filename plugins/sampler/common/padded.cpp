// Fills packs that are padded to their longest sequence.
#include "padded.hpp"

namespace pliant::sampler {

void fill_padded(std::span<const int32_t> lengths, const PaddedRule& rule, std::vector<uint64_t>& offsets) {
  size_t begin = 0;
  PaddedPack pack(rule);
  size_t next = 0;
  while (begin < lengths.size()) {
    if (next < lengths.size() && pack.add(lengths[next])) {
      ++next;
      continue;
    }
    begin += pack.kept();
    offsets.push_back(begin);
    pack = PaddedPack(rule);
    next = begin;
  }
}

}  // namespace pliant::sampler
