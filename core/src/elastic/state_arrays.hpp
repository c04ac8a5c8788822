// StateArrays: the arrays of a program's state: what they are, and their bytes out of and into wherever they lie.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "elastic/memory_check.hpp"
#include "elastic/staging.hpp"
#include "pliant/accelerator.hpp"
#include "pliant/training_state.hpp"

namespace pliant::elastic {

class StateArrays {
 public:
  /// Bytes that are copied at once, at most.
  static constexpr uint64_t kChunkBytes = uint64_t{8} << 20;

  /// Throws kInvalidArgument for arrays that are none, or lie in memory that is none for the rank, as `memory` tells:
  /// all of it must be there to read and write. `program` outlives this.
  explicit StateArrays(TrainingState& program, std::optional<MemoryCheck> memory = {});

  /// One line for each array, "layers.0.weight f32[64,32]": equal text, equal arrays.
  [[nodiscard]] const std::string& layout() const { return layout_; }
  [[nodiscard]] bool empty() const { return layout_.empty(); }

  /// The arrays as they lie now. Throws kFailedPrecondition when they are not those of the beginning, and what the
  /// constructor throws; of arrays that lie where they were looked at last, only the ends are looked at.
  [[nodiscard]] std::vector<StateArray> now() const { return now(false); }
  /// The CPU reads the array of now() where it lies; false, too, where nothing is told of memory.
  [[nodiscard]] bool is_for_cpu(const StateArray& array) const;
  /// Throws as now() where names, types or shapes are others; looks at no memory. O(arrays).
  void require_unchanged() const;
  /// Throws kFailedPrecondition, with the first difference, where `other` is not this layout. `whose`: of whom or what,
  /// "the snapshot".
  void require(const std::string& other, const std::string& whose) const;

  /// All arrays, in order and in chunks, of memory that was looked at as by the constructor.
  void each_chunk(const std::function<void(void* data, uint64_t bytes)>& take) const;

 private:
  [[nodiscard]] std::vector<StateArray> now(bool looks_at_all) const;

  TrainingState& program_;
  std::optional<MemoryCheck> memory_;
  std::vector<StateArray> first_;  ///< but for where they lay
  std::string layout_;
  mutable std::vector<const void*> looked_at_;  ///< where they lay when all of their memory was last looked at
};

/// Bytes of its elements.
uint64_t bytes_of(const StateArray& array);

/// An array as a layout names it.
struct ArrayOfLayout {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;  ///< of its elements, below 2^63
};
/// Reads what StateArrays::layout says, in its order. kDataLoss for what is no line of one.
Result<std::vector<ArrayOfLayout>> arrays_of_layout(std::string_view layout);

/// Writes the arrays one after the other, and reads them back to where they lie. `staging`, of kChunkBytes: what all
/// goes through; NULL where the CPU sees the device's memory. Throw what the stream of the device throws; a failing
/// stream is left as it is.
void write_arrays(const StateArrays& arrays, std::ostream& out, Stream& stream, Staging* staging);
void read_arrays(const StateArrays& arrays, std::istream& in, Stream& stream, Staging* staging);

}  // namespace pliant::elastic
