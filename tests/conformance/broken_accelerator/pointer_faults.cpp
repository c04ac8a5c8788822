// Faults of what is said of pointers.
#include <cstddef>
#include <optional>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// kind: pinned memory is device memory; device: all is memory of the next one; range: the first kilobyte is left out;
/// begins: only the first byte of an allocation is known; all: plain memory is device memory, too.
class PointerWrong : public Honest {
 public:
  std::optional<sdk::PointerInfo> pointer_info(const void* pointer) override {
    std::optional<sdk::PointerInfo> made = Device::pointer_info(pointer);
    if (!made) return way == "all" ? std::optional(sdk::PointerInfo{Memory::kDevice, 0}) : made;
    if (way == "kind" && made->memory == Memory::kPinned) made->memory = Memory::kDevice;
    if (way == "device") made->device = 1;
    if (way == "range") made->base = static_cast<const std::byte*>(made->base) + 1024;
    if (way == "begins" && made->base != pointer) return std::nullopt;
    return made;
  }
};

}  // namespace

std::vector<Fault> pointer_faults() {
  return {{"pointer-wrong", {"kind", "device", "range", "begins", "all"}, make<PointerWrong>}};
}

}  // namespace pliant::broken
