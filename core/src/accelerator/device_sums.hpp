// DeviceSums: copies, additions and casts of floats on a rank's device, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pliant/accelerator.hpp"

namespace pliant::detail {

/// Where the CPU reaches the device's memory the calling thread computes at once: no other thread has to wake up for
/// it, and the caches hold the operands. Elsewhere the work is enqueued on a stream, in order with all else there. The
/// bits are the same.
class DeviceSums {
 public:
  /// `stream` is of the device and outlives this.
  DeviceSums(const Accelerator& accelerator, int32_t device, Stream& stream);
  /// Waits for what anybody enqueued on the stream: it may use the sums.
  ~DeviceSums() { drain(); }
  DeviceSums(const DeviceSums&) = delete;
  DeviceSums& operator=(const DeviceSums&) = delete;

  /// Device, pinned or plain memory, also below.
  void copy(void* to, const void* from, size_t bytes);
  void zero(float* to, size_t count);
  /// False where one is a NaN or an infinity. Waits for what was enqueued.
  [[nodiscard]] bool finite(const float* there, size_t count);
  /// The same of memory that the CPU reads, at once.
  [[nodiscard]] static bool finite_here(const float* values, size_t count);
  /// The calling thread computes: looking at what is added soon is next to free.
  [[nodiscard]] bool is_here() const { return here_; }
  /// to[i] += from[i]. No overlap.
  void add(float* to, const void* from, size_t count);
  /// Where the CPU does not compute: to[i] = from[0][i] + from[1][i] + ..., in that order; `to` may be one of them.
  void sum(float* to, std::span<const void* const> from, size_t count);
  /// to[i] = from[i], which are of `type`.
  void cast(float* to, const void* from, DType type, size_t count);
  /// Waits until all of that is done.
  void finish();
  /// Waits until all that anybody enqueued on the stream is done.
  void synchronize() { stream_.synchronize(); }
  /// As synchronize, when something failed: what else fails is not told.
  void drain() noexcept;
  /// Floats that are best added at once when several sums go over the same memory: what a first-level cache holds.
  [[nodiscard]] size_t block(size_t all) const;

 private:
  [[nodiscard]] bool finite_there(const float* there, size_t count);

  Accelerator accelerator_;
  int32_t device_;
  Buffer looked_at_;  ///< two chunks of what finite_there makes of floats
  Stream& stream_;
  bool here_;  ///< the calling thread computes
};

}  // namespace pliant::detail
