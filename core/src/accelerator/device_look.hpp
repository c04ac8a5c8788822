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
/// device makes one number for 1024 elements; those of a block become one, which is added to that of the block, once
/// there is no room for more or another block was closed: a launch for each part, and few for many parts. Memory on the
/// device: one 512th of `elements` that are looked at before that, and a number for each block; from the first part on.
class DeviceLook {
 public:
  /// `elements`: at least those of the largest part. `stream` is of the device and outlives this; what is enqueued on
  /// it has run before this goes.
  DeviceLook(const Accelerator& accelerator, int32_t device, Stream& stream, size_t elements);

  /// Forgets all. `blocks` come.
  void begin(size_t blocks);
  /// A part of a gradient, in device or pinned memory. False on a device that has no kernel for it, or too little
  /// memory: then nothing was looked at, and will not be.
  bool add(const float* from, size_t count);
  /// What was added since the last call is of this block, of which there may be several calls.
  void close(size_t block);
  /// Numbers, ascending, of the blocks that have one; nullopt where the device could not look at all that it was given:
  /// an add() of this step or one before returned false, or what it began with it refused to finish. Waits.
  [[nodiscard]] std::optional<std::vector<size_t>> not_finite();

  /// Of so many parts that end within a chunk the numbers are folded into one.
  static constexpr size_t kPartsAtOnce = 1024;

 private:
  void take_memory();
  /// False where there is too little, from then on.
  [[nodiscard]] bool has_memory();
  /// Of so many of numbers_ from `first` on one number, finite exactly where all are. Where it lies.
  [[nodiscard]] double* fold(size_t first, size_t count);
  /// What is closed is added to its block.
  void settle();
  void make_room(size_t more);
  [[nodiscard]] bool norms(double* to, const void* from, size_t floats);

  Accelerator accelerator_;
  int32_t device_;
  Stream& stream_;
  size_t capacity_;        ///< of numbers_
  bool can_ = true;        ///< the device has kernels for it, as far as is known
  bool is_ready_ = false;  ///< marks_ are those of this step
  size_t blocks_ = 0;
  size_t first_ = 0;   ///< of numbers_, those of what was added
  size_t closed_ = 0;  ///< up to here of block_
  size_t used_ = 0;    ///< up to here of a block that is not closed
  size_t block_ = 0;
  Buffer numbers_;
  Buffer folded_;  ///< numbers on their way to one
  Buffer marks_;   ///< of each block one number
};

}  // namespace pliant::detail
