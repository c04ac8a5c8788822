// Stamps are read as one reads what somebody writes meanwhile: head, all else, and the head again.
#include "sharded/shards/shard_stamp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "data/digest.hpp"
#include "pliant/error.hpp"

namespace pliant::sharded {

uint64_t StampHead::seal() const {
  data::Digest of;
  for (const uint64_t field : {magic, uint64_t{version}, uint64_t{is_digested}, static_cast<uint64_t>(step), changes,
                               static_cast<uint64_t>(elements), static_cast<uint64_t>(chunk_elements), chunks}) {
    of.add(field);
  }
  return of.value();
}

void take_digests(data::ArrayDigests& digests, const FlatLayout& layout, ChunkRange chunks, const float* values,
                  std::span<uint64_t> taken) {
  const FlatRange range = layout.range_of(chunks);
  const int64_t elements = std::min(range.end(), layout.elements()) - range.first;
  if (elements <= 0) return;
  constexpr uint64_t kBlock = data::ArrayDigests::kBlockBytes / sizeof(float);
  static_assert(FlatLayout::kSmallestChunk % kBlock == 0);
  digests.digests_of(values, static_cast<uint64_t>(elements) * sizeof(float),
                     static_cast<uint64_t>(range.first) / kBlock,
                     static_cast<uint64_t>(layout.chunk_elements()) / kBlock, taken);
}

std::optional<StampHead> MappedShard::read_head() {
  StampHead head;
  stream_.copy(&head, at_ + value_bytes_, sizeof(head));
  stream_.synchronize();
  if (head.magic != StampHead::kMagic || head.version != StampHead::kVersion) {
    throw Error(Status::kDataLoss,
                fmt::format("there is no stamp of a shard after {} bytes of values, or it does not have version {}",
                            value_bytes_, StampHead::kVersion));
  }
  if (head.step == kNoStep || head.check != head.seal()) return std::nullopt;
  return head;
}

std::optional<Stamp> MappedShard::read(void* to) {
  const std::optional<StampHead> head = read_head();
  if (!head) return std::nullopt;
  Result<FlatLayout> layout = FlatLayout::create(head->elements);
  if (!layout || layout->chunk_elements() != head->chunk_elements || head->chunks > uint64_t{FlatLayout::kMostChunks} ||
      head->chunks * static_cast<uint64_t>(head->chunk_elements) * sizeof(float) != value_bytes_) {
    throw Error(Status::kDataLoss,
                fmt::format("the stamp of a shard has {} chunks of {} elements, but {} bytes of values precede it",
                            head->chunks, head->chunk_elements, value_bytes_));
  }
  Stamp made{*head, *layout, std::vector<StampEntry>(head->chunks)};
  if (!made.chunks.empty()) {
    stream_.copy(made.chunks.data(), at_ + value_bytes_ + sizeof(StampHead), made.chunks.size() * sizeof(StampEntry));
  }
  if (to != nullptr && value_bytes_ > 0) stream_.copy(to, at_, value_bytes_);
  stream_.synchronize();
  if (read_head() != head) return std::nullopt;
  const bool are_chunks = std::all_of(made.chunks.begin(), made.chunks.end(), [&](const StampEntry& one) {
    return one.chunk >= 0 && one.chunk < layout->chunks();
  });
  if (!are_chunks) throw Error(Status::kDataLoss, "the stamp of a shard names chunks that the model lacks");
  return made;
}

}  // namespace pliant::sharded
