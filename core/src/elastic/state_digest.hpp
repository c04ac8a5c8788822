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

namespace pliant::elastic {

/// Of one run of bytes that come piece by piece, in order.
class DigestOfBytes {
 public:
  static constexpr size_t kBlockBytes = 1024;
  /// `block`: the place of the first byte, in blocks.
  explicit DigestOfBytes(uint64_t block = 0) : block_(block) {}
  void add(const void* data, uint64_t bytes);
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

/// Of a whole training state. O(bytes). Where the CPU does not see the device's memory, arrays come through one chunk.
/// Throws what the program or the stream throws.
StateDigest digest_of_state(const StateArrays& arrays, const TrainingState& program, const std::string& lr_state,
                            Stream& stream, bool host_visible);

}  // namespace pliant::elastic
