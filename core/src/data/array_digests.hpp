// ArrayDigests: digests of arrays where they lie, of all of an array or part by part.
//
// A digest is the sum, modulo 2^64, of one value for each block of 1 KiB: blocks may be taken in any order, on any
// device, by any number of ranks whose shares begin at multiples of a block. The value of a block is a mix of its place
// and of NH over its words (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC: Fast and Secure Message Authentication",
// 1999, section 4.2) with fixed keys. It finds accidents, not attacks: two different blocks have one value with a
// chance of about 2^-32.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/digest.hpp"
#include "pliant/accelerator.hpp"
#include "pliant/sdk/block_digest.hpp"

namespace pliant::data {

/// Of block number `place`, whose NH is `nh` (sdk::digest_of_block).
constexpr uint64_t value_of_block(uint64_t nh, uint64_t place) {
  return mix64(nh ^ mix64(place));
}

/// Memory that the CPU does not see is left to the device, and where that cannot, comes to the CPU through one chunk.
/// Keeps room for both. One thread.
class ArrayDigests {
 public:
  static constexpr uint64_t kBlockBytes = sdk::kDigestBlockBytes;

  /// Device and stream live longer than this. `host_visible`: the CPU reads the device's memory.
  ArrayDigests(const Accelerator& accelerator, int32_t device, Stream& stream, bool host_visible)
      : accelerator_(accelerator), device_(device), stream_(stream), host_visible_(host_visible) {}
  /// Of a run of an array whose first byte is at `block`, in blocks; a last block that is not full counts as if zeros
  /// followed. Runs of one array add up, modulo 2^64. O(bytes). Throws what the stream throws, and kResourceExhausted.
  uint64_t digest_of(const void* data, uint64_t bytes, uint64_t block = 0);
  /// The same of memory that the CPU reads, whatever the device is.
  static uint64_t digest_here(const void* data, uint64_t bytes);
  /// The same for parts of `blocks_each` blocks, the last of which may be shorter: parts[i] is that of the i-th. As
  /// many as there are.
  void digests_of(const void* data, uint64_t bytes, uint64_t block, uint64_t blocks_each, std::span<uint64_t> parts);
  Stream& stream() { return stream_; }
  /// Bytes that came to the CPU, so far.
  [[nodiscard]] uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  class Parts;
  void take_on_device(Parts& parts, const std::byte* at, uint64_t bytes);
  void take_copies(Parts& parts, const std::byte* at, uint64_t bytes);

  const Accelerator accelerator_;
  const int32_t device_;
  Stream& stream_;
  const bool host_visible_;
  bool device_can_ = true;  ///< until it says that it cannot
  Buffer values_;
  std::string chunk_;
  uint64_t copied_bytes_ = 0;
};

}  // namespace pliant::data
