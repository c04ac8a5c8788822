// StateDigest: tells equal states from different ones, whole or part by part.
//
// The digest of a part (an array, or what the program writes itself) is the sum, modulo 2^64, of one value for each
// block of 1 KiB: blocks may be taken in any order, on any device, by any number of ranks whose shares begin at
// multiples of a block. The value of a block is a mix of its place and of NH over its words (Black, Halevi, Krawczyk,
// Krovetz, Rogaway, "UMAC: Fast and Secure Message Authentication", 1999, section 4.2) with fixed keys. It finds
// accidents, not attacks: two different blocks have one value with a chance of about 2^-32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "elastic/state_arrays.hpp"
#include "pliant/sdk/block_digest.hpp"

namespace pliant::elastic {

/// Of one run of bytes that come piece by piece, in order.
class DigestOfBytes {
 public:
  static constexpr size_t kBlockBytes = sdk::kDigestBlockBytes;
  /// `block`: the place of the first byte, in blocks.
  explicit DigestOfBytes(uint64_t block = 0) : block_(block) {}
  void add(const void* data, uint64_t bytes);
  /// Whole blocks of which sdk::digest_of_block is known. All before were whole.
  void add_blocks(const uint64_t* digests, uint64_t blocks);
  /// The sum so far; a last block that is not full counts as if zeros followed. Call it once, at the end.
  [[nodiscard]] uint64_t finish();

 private:
  std::array<std::byte, kBlockBytes> rest_{};
  size_t in_rest_ = 0;
  uint64_t block_;
  uint64_t sum_ = 0;
};

struct StateDigest {
  uint64_t root = 0;
  /// By name: the arrays, "(rest)" for what the program writes itself, "(lr)" for the state of the learning-rate rules.
  std::vector<std::pair<std::string, uint64_t>> parts;
};

/// In a run directory: a line for each digest that was taken, {"step":7,"root":"<hex>","parts":{"weights":"<hex>"}}. A
/// step that was computed again has more than one.
inline constexpr const char* kDigestsFile = "digests.jsonl";
std::string digest_line(int64_t step, const StateDigest& digest);

/// Takes digests of arrays where they lie: memory that the CPU does not see is left to the device, and where that
/// cannot, comes to the CPU through one chunk. Keeps room for both. One thread.
class ArrayDigests {
 public:
  /// All three live longer than this. `host_visible`: the CPU reads the device's memory.
  ArrayDigests(const Accelerator& accelerator, int32_t device, Stream& stream, bool host_visible)
      : accelerator_(accelerator), device_(device), stream_(stream), host_visible_(host_visible) {}
  /// Of a run of an array whose first byte is at `block`, in blocks; runs of one array add up, modulo 2^64. O(bytes).
  /// Throws what the stream throws, and kResourceExhausted.
  uint64_t digest_of(const void* data, uint64_t bytes, uint64_t block = 0);
  Stream& stream() { return stream_; }
  /// Bytes that came to the CPU, so far.
  [[nodiscard]] uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  void take_on_device(DigestOfBytes& digest, const std::byte* at, uint64_t bytes);
  void take_copies(DigestOfBytes& digest, const std::byte* at, uint64_t bytes);

  const Accelerator& accelerator_;
  const int32_t device_;
  Stream& stream_;
  const bool host_visible_;
  bool device_can_ = true;  ///< until it says that it cannot
  Buffer values_;
  std::string chunk_;
  uint64_t copied_bytes_ = 0;
};

/// An array of which the digest is known.
struct DigestOfArray {
  std::string name;
  uint64_t digest = 0;
  uint64_t bytes = 0;
};

/// Of a state whose arrays were taken before, by whoever holds them.
StateDigest digest_of_state(const std::vector<DigestOfArray>& arrays, const TrainingState& program,
                            const std::string& lr_state);

/// Of a whole training state. O(bytes). Throws what the program or the stream throws.
StateDigest digest_of_state(const StateArrays& arrays, const TrainingState& program, const std::string& lr_state,
                            ArrayDigests& digests);

}  // namespace pliant::elastic
