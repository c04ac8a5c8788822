// Reductions and casts that the CPU does for a device, in stream order: what it cannot reach goes through pinned
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "pliant/sdk/accelerator.hpp"

namespace pliant::devices {

/// Who may read and write a range of memory.
struct Reach {
  bool device = false;
  bool host = false;
};

/// Staging memory has room for 64 bytes of each operand of a reduction.
inline constexpr int64_t kLeastStagingBytes = 128 * 1024;

/// The caller's turn on a stream. What is given to it runs in the order given.
class Lane {
 public:
  /// `broken`: work before it failed on the device.
  using HostWork = std::function<void(bool broken)>;

  Lane() = default;
  virtual ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Throws PLIANT_INVALID_ARGUMENT when the range leaves its allocation. `what` names it in the message.
  [[nodiscard]] virtual Reach reach_of(const void* pointer, uint64_t bytes, const char* what) const = 0;
  /// The device reaches both sides of each.
  virtual void copy_on_device(std::vector<pliant_copy> copies) = 0;
  virtual void on_host(HostWork work) = 0;
  /// Pinned memory, for work of this turn alone.
  [[nodiscard]] virtual std::byte* staging() = 0;
  /// At least kLeastStagingBytes.
  [[nodiscard]] virtual uint64_t staging_bytes() const = 0;
};

void copy_on_host(Lane& lane, std::vector<pliant_copy> copies);
void reduce(Lane& lane, void* to, std::span<const void* const> from, sdk::Elements elements, sdk::ReduceOp op,
            double scale);
void cast(Lane& lane, void* to, sdk::DType to_type, const void* from, sdk::Elements elements);

}  // namespace pliant::devices
