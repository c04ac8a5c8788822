// MemoryCheck: whether a rank can use memory that its program names, as far as that can be told without using it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

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
  };
  /// Of a range, bytes > 0. Throws what Accelerator::pointer_info throws.
  [[nodiscard]] Finding look_at(const void* memory, uint64_t bytes) const;

 private:
  Accelerator accelerator_;
  int32_t device_;
};

}  // namespace pliant::elastic
