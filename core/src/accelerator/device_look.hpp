// DeviceLook: which of a rank's blocks have a NaN or an infinity in their gradient, looked for by the device that has
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "pliant/accelerator.hpp"

namespace pliant::detail {

/// Every call but not_finite() only enqueues, in order with all else on the stream. Of each part of a gradient the
/// device makes one number for 1024 elements, and of those that came since the last part was closed one, which it adds
/// to that of the block. Memory on the device: one 512th of a gradient, and a number for each block; from the first
/// part on.
class DeviceLook {
 public:
  /// `stream` is of the device and outlives this; what is enqueued on it has run before this goes.
  DeviceLook(const Accelerator& accelerator, int32_t device, Stream& stream, size_t gradient_size);

  /// Forgets all. `blocks` come.
  void begin(size_t blocks);
  /// A part of a gradient, in device or pinned memory. False on a device that has no kernel for it, or too little
  /// memory: then nothing was looked at, and will not be.
  bool add(const float* from, size_t count);
  /// What was added since the last call is of this block, of which there may be several calls.
  void close(size_t block);
  /// Numbers, ascending, of the blocks that have one; nullopt where the device could not look. Waits.
  [[nodiscard]] std::optional<std::vector<size_t>> not_finite();

  /// Of so many parts that end within a chunk the numbers are folded into one.
  static constexpr size_t kPartsAtOnce = 1024;

 private:
  void take_memory();
  /// False where there is too little, from then on.
  [[nodiscard]] bool has_memory();
  /// One number, finite exactly where all are, which are gone then. Where it lies.
  [[nodiscard]] double* fold();
  [[nodiscard]] bool norms(double* to, const void* from, size_t floats);

  Accelerator accelerator_;
  int32_t device_;
  Stream& stream_;
  size_t capacity_;        ///< of numbers_
  bool can_ = true;        ///< the device has kernels for it, as far as is known
  bool is_ready_ = false;  ///< marks_ are those of this step
  size_t blocks_ = 0;
  size_t used_ = 0;  ///< of numbers_
  Buffer numbers_;   ///< of what was added and not closed
  Buffer folded_;    ///< numbers on their way to one
  Buffer marks_;     ///< of each block one number
};

}  // namespace pliant::detail
