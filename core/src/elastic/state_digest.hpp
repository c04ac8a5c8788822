// StateDigest: tells equal states from different ones, whole or part by part.
//
// The digest of a part (an array, or what the program writes itself) is that of data/array_digests.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/array_digests.hpp"
#include "elastic/state_arrays.hpp"

namespace pliant::elastic {

/// Of one run of bytes that come piece by piece, in order.
class DigestOfBytes {
 public:
  static constexpr size_t kBlockBytes = data::ArrayDigests::kBlockBytes;
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

/// In a run directory: a line for each digest that rank 0 took, {"step":7,"root":"<hex>","parts":{"weights":"<hex>"}}.
/// Written before the vote: every step that is committed with a digest has the line of its root, a step that was
/// computed again more than one, and one that was not committed may have some.
inline constexpr const char* kDigestsFile = "digests.jsonl";
std::string digest_line(int64_t step, const StateDigest& digest);

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
                            data::ArrayDigests& digests);

}  // namespace pliant::elastic
