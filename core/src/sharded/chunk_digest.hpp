// digest_of_chunk(): tells equal chunks of an array from different ones.
#pragma once

#include <cstdint>

#include "sharded/layout.hpp"

namespace pliant::sharded {

/// Of the elements of one chunk of an array over the flat space. Depends on where the chunk lies. The sum of all,
/// modulo 2^64, is that of the array as DigestOfBytes takes it of its flat space: so chunks may be taken in any order
/// and by any ranks. It finds accidents, not attacks.
uint64_t digest_of_chunk(const ShardLayout& layout, ChunkId chunk, const float* elements);

}  // namespace pliant::sharded
