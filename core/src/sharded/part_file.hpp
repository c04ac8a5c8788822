// The file of one rank's part of a snapshot. Little-endian:
//   8 bytes  magic
//   u32      format version
//   u32      size of the header
//   u64      digest of the header
//   header   JSON: which snapshot, which rank, which arrays, which chunks
//   zeros    up to a multiple of 4096 bytes
//   arrays   one after the other, each the rank's chunks of it in their order, f32
//   digests  u64 for each chunk of each array, in the same order
//   u64      digest of the header and the digests: that of the part
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "sharded/snapshot_index.hpp"

namespace pliant::sharded {

/// Where what lies in the file of one rank.
class PartFile {
 public:
  static constexpr size_t kPrefixBytes = 24;
  static constexpr uint64_t kAlignment = 4096;

  PartFile(const SnapshotContent& content, const ShardLayout& layout, int32_t rank);

  /// Magic to zeros.
  [[nodiscard]] const std::string& head() const { return head_; }
  /// Of the rank.
  [[nodiscard]] int32_t chunks() const { return chunks_; }
  /// Where a chunk of the rank's shard lies.
  [[nodiscard]] uint64_t offset_of(size_t kind, int32_t slot) const {
    return head_.size() + place_of(kind, slot) * chunk_bytes_;
  }
  /// Which of the digests is that of a chunk.
  [[nodiscard]] uint64_t place_of(size_t kind, int32_t slot) const {
    return kind * static_cast<uint64_t>(chunks_) + static_cast<uint64_t>(slot);
  }
  [[nodiscard]] uint64_t digests_offset() const { return offset_of(kinds_, 0); }
  [[nodiscard]] uint64_t digests() const { return place_of(kinds_, 0); }
  [[nodiscard]] uint64_t file_bytes() const { return digests_offset() + (digests() + 1) * sizeof(uint64_t); }
  /// Of the whole part.
  [[nodiscard]] uint64_t digest(const std::vector<uint64_t>& chunk_digests) const;

  /// Bytes of the head that `prefix` begins; 0: it begins none.
  static uint64_t head_bytes(std::string_view prefix);
  /// Checks the head of a file: kDataLoss where it is damaged, kFailedPrecondition where it is that of another
  /// snapshot, rank or model. The message says only why.
  [[nodiscard]] Result<> check(std::string_view head) const;

 private:
  uint64_t chunk_bytes_;
  size_t kinds_;
  int32_t chunks_;
  std::string head_;
};

}  // namespace pliant::sharded
