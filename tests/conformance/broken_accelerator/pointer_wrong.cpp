// BROKEN: what is said of pointers is wrong in one way, the option `fault`.
#include <optional>
#include <string>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)
using pliant::sdk::Memory;
using pliant::sdk::PointerInfo;

struct PointerWrong : Honest<PointerWrong> {
  std::string fault = "kind";
  static void options(pliant::sdk::Options<PointerWrong>& table) {
    table
        .add(
            "fault", &PointerWrong::fault,
            "kind: pinned memory is device memory; device: all is memory of the next one; range: the first kilobyte is "
            "left out; begins: only the first byte of an allocation is known; all: plain memory is device memory, too.")
        .choices({"kind", "device", "range", "begins", "all"});
  }
  std::optional<PointerInfo> pointer_info(const void* pointer) {
    std::optional<PointerInfo> made = Device::pointer_info(pointer);
    if (!made) return fault == "all" ? std::optional(PointerInfo{Memory::kDevice, 0}) : made;
    if (fault == "kind" && made->memory == Memory::kPinned) made->memory = Memory::kDevice;
    if (fault == "device") made->device = 1;
    if (fault == "range") made->base = static_cast<const std::byte*>(made->base) + 1024;
    if (fault == "begins" && made->base != pointer) return std::nullopt;
    return made;
  }
};

}  // namespace

PLIANT_BROKEN(PointerWrong, "pointer-wrong")
