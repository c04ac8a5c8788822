// Staging: memory of the host through which state goes between the device and files.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "pliant/accelerator.hpp"

namespace pliant::elastic {

/// Made at its first use and kept: pinned where the accelerator pins memory of the program, and not counted as the
/// accelerator's. One thread at a time; whoever copies to or from it waits for that before the next use.
class Staging {
 public:
  Staging(Accelerator accelerator, uint64_t bytes) : accelerator_(std::move(accelerator)), bytes_(bytes) {}
  /// All of it. Throws kResourceExhausted.
  [[nodiscard]] char* data();
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  Accelerator accelerator_;
  uint64_t bytes_;
  std::unique_ptr<char, Free> memory_;
  RegisteredMemory registered_;  ///< goes before the memory
};

}  // namespace pliant::elastic
