// The stamp of a shard's array: the step that its values belong to, and the digest of each chunk. Where other processes
// can map the array, the stamp lies behind the values, in the layout below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/array_digests.hpp"
#include "pliant/accelerator.hpp"
#include "sharded/shards/layout.hpp"

namespace pliant::sharded {

/// Values that are of no step: they change, or there were none yet.
inline constexpr int64_t kNoStep = -1;

/// Begins a stamp, in the byte order of the machine. `chunks` StampEntry follow it.
struct StampHead {
  static constexpr uint64_t kMagic = 0x31706d6174536c50U;  ///< "PlStamp1" in memory of a little-endian machine
  static constexpr uint32_t kVersion = 1;

  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t is_digested = 0;    ///< 1: the entries have digests of these values
  int64_t step = kNoStep;      ///< kNoStep is written before the values change, the step after they have
  uint64_t changes = 0;        ///< of the values, so far: two looks that find one step may be at other values
  int64_t elements = 0;        ///< of the flat space
  int64_t chunk_elements = 0;  ///< FlatLayout::chunk_elements of that
  uint64_t chunks = 0;         ///< that lie before the stamp, chunk_elements * 4 bytes each
  uint64_t check = 0;          ///< seal() of the fields above: a head of which only a part is written has another
  friend bool operator==(const StampHead&, const StampHead&) = default;

  [[nodiscard]] uint64_t seal() const;
};
static_assert(sizeof(StampHead) == 64 && offsetof(StampHead, step) == 16 && offsetof(StampHead, check) == 56);

/// By place in the array.
struct StampEntry {
  int64_t chunk = 0;
  uint64_t digest = 0;  ///< of its bytes up to the end of the flat space (data/array_digests.hpp)
  friend bool operator==(const StampEntry&, const StampEntry&) = default;
};
static_assert(sizeof(StampEntry) == 16);

/// What a stamp says of values that do not change.
struct Stamp {
  StampHead head;
  FlatLayout layout;
  std::vector<StampEntry> chunks;
};

/// Digests of chunks that lie side by side, the first at `values`. O(bytes). Throws what ArrayDigests throws.
void take_digests(data::ArrayDigests& digests, const FlatLayout& layout, ChunkRange chunks, const float* values,
                  std::span<uint64_t> taken);

/// An array that another process owns, and changes, mapped in this one. One thread.
class MappedShard {
 public:
  /// `value_bytes` of values lie `at`, and the stamp behind them. The mapping and the stream outlive this.
  MappedShard(const void* at, uint64_t value_bytes, Stream& stream)
      : at_(static_cast<const std::byte*>(at)), value_bytes_(value_bytes), stream_(stream) {}

  /// Empty: the values change now, look again. Throws kDataLoss for what is no stamp of so many bytes, and what the
  /// stream throws.
  [[nodiscard]] std::optional<Stamp> stamp() { return read(nullptr); }
  /// Copies the values to `to`, memory of the device or the CPU with room for them: all are of the step that the stamp
  /// names. Empty: they changed meanwhile, and what lies at `to` is nothing. Throws likewise.
  [[nodiscard]] std::optional<Stamp> read(void* to);

 private:
  /// Empty while it says kNoStep or is being written.
  std::optional<StampHead> read_head();

  const std::byte* const at_;
  const uint64_t value_bytes_;
  Stream& stream_;
};

}  // namespace pliant::sharded
