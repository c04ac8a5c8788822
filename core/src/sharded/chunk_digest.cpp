// Digests of chunks: sums over blocks that are mixed with their places.
#include "sharded/chunk_digest.hpp"

#include <cstddef>

#include "data/digest.hpp"
#include "pliant/sdk/block_digest.hpp"

namespace pliant::sharded {

static_assert(ShardLayout::kAlignment * sizeof(float) == sdk::kDigestBlockBytes);

uint64_t digest_of_chunk(const ShardLayout& layout, ChunkId chunk, const float* elements) {
  const auto blocks = static_cast<uint64_t>(layout.chunk_elements() / ShardLayout::kAlignment);
  const uint64_t first = index_of(chunk) * blocks;
  const auto* const bytes = reinterpret_cast<const std::byte*>(elements);
  uint64_t sum = 0;
  for (uint64_t block = 0; block < blocks; ++block) {
    const uint64_t digest = sdk::digest_of_block(bytes + block * sdk::kDigestBlockBytes);
    sum += data::mix64(digest ^ data::mix64(first + block));
  }
  return sum;
}

}  // namespace pliant::sharded
