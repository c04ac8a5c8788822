// MemoryCheck: whether a rank can use memory that its program names, as far as that can be told without using it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/memory_map.hpp"
#include "pliant/accelerator.hpp"

namespace pliant::elastic {

/// Asks the accelerator, and the kernel about memory that the accelerator does not know. Memory that was freed and
/// whose place is in use again, or was kept by an allocator, is not told from other memory.
class MemoryCheck {
 public:
  MemoryCheck(Accelerator accelerator, int32_t device) : accelerator_(std::move(accelerator)), device_(device) {}

  struct Finding {
    std::string refusal;     ///< "is memory of device 1, ..."; empty: nothing is wrong with it
    bool is_for_cpu = true;  ///< the CPU can read it
    bool is_known = true;    ///< to the accelerator
  };
  /// Of a range, bytes > 0, that is read. What the accelerator does not know is looked at by its ends. Throws what
  /// Accelerator::pointer_info throws.
  [[nodiscard]] Finding look_at(const void* memory, uint64_t bytes) const;
  /// The same of one that is read and written, and of every byte of it. `map` may serve several ranges.
  [[nodiscard]] Finding look_at_all(const void* memory, uint64_t bytes, MemoryMap& map) const;

 private:
  Accelerator accelerator_;
  int32_t device_;
};

}  // namespace pliant::elastic
