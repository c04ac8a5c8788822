// The digest of blocks as kernels compute it: the values of pliant/sdk/block_digest.hpp.
#pragma once

#include "element.hpp"

namespace pliant::kernels {

enum { kDigestWords = 256 };

struct DigestBlock {
  uint32_t words[kDigestWords];
};

PLIANT_KERNEL_CODE uint32_t digest_key(uint32_t i) {
  uint64_t x = i + 1 + 0x9e3779b97f4a7c15UL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9UL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebUL;
  x ^= x >> 31U;
  return static_cast<uint32_t>(x >> 32U);
}

/// `words`: the first of a block's.
template <class Words>
PLIANT_KERNEL_CODE uint64_t digest_of_block(Words words) {
  uint64_t sum = 0;
  uint32_t i = 0;
  while (i < kDigestWords) {
    const uint32_t left = words[i] + digest_key(i);
    const uint32_t right = words[i + 1] + digest_key(i + 1);
    sum += static_cast<uint64_t>(left) * right;
    i += 2;
  }
  return sum;
}

}  // namespace pliant::kernels
