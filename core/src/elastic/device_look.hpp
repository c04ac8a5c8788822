// DeviceLook: which of a rank's blocks have a NaN or an infinity in their gradient, looked for by the device that adds
// them up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "pliant/accelerator.hpp"

namespace pliant::elastic {

/// Every call but not_finite() only enqueues, in order with all else on the stream. Of each part of a gradient the
/// device makes one number for 1024 elements, and of those of a block one. Memory on the device: one 512th of a
/// gradient, and a number for each block; from the first part on.
class DeviceLook {
 public:
  /// `stream` is of the device and outlives this; what is enqueued on it has run before this goes.
  DeviceLook(const Accelerator& accelerator, int32_t device, Stream& stream, size_t gradient_size);

  /// Forgets all. `blocks` come.
  void begin(size_t blocks);
  /// A part of the open block's gradient, in device or pinned memory. Nothing on a device that has no kernel for it, or
  /// too little memory.
  void add(const float* from, size_t count);
  /// The next block begins.
  void close_block();
  /// Numbers, ascending, of the blocks that have one; nullopt where the device could not look. Waits.
  [[nodiscard]] std::optional<std::vector<size_t>> not_finite();

 private:
  void take_memory();
  /// False where there is too little, from then on.
  [[nodiscard]] bool has_memory();
  /// *to is finite exactly where all numbers are; they are gone then. `to` lies elsewhere.
  void fold(double* to);
  [[nodiscard]] bool norms(double* to, const void* from, size_t floats);

  Accelerator accelerator_;
  int32_t device_;
  Stream& stream_;
  size_t capacity_;        ///< of numbers_
  bool can_ = true;        ///< the device has kernels for it, as far as is known
  bool is_ready_ = false;  ///< marks_ are those of this step
  size_t blocks_ = 0;
  size_t block_ = 0;  ///< the open one
  size_t used_ = 0;   ///< of numbers_
  Buffer numbers_;    ///< of the open block
  Buffer folded_;     ///< numbers on their way to one, and behind them one
  Buffer marks_;      ///< of each block one number
};

}  // namespace pliant::elastic
