// BROKEN: one kind of work, the option `slot`, runs at once, not in stream order; copies on a device whose memory the
// CPU is said not to see.
#include <string>

#include "honest.hpp"
#include "pliant/sdk/arithmetic.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct AtOnce : Honest<AtOnce> {
  std::string slot = "fill";
  static void options(pliant::sdk::Options<AtOnce>& table) {
    table.add("slot", &AtOnce::slot, "What runs at once.").choices({"batch", "fill", "reduce", "cast", "unseen_copy"});
  }
  pliant::sdk::DeviceProperties device_properties(int32_t device) {
    pliant::sdk::DeviceProperties made = Device::device_properties(device);
    if (slot == "unseen_copy") made.capabilities &= ~uint32_t{PLIANT_CAP_HOST_VISIBLE};
    return made;
  }
  void copy(void* to, const void* from, uint64_t bytes, Stream& stream) {
    if (slot != "unseen_copy") return Device::copy(to, from, bytes, stream);
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  void copy(std::span<const pliant_copy> copies, Stream& stream) {
    if (slot != "batch") return Device::copy(copies, stream);
    for (const pliant_copy& one : copies) {
      if (one.bytes != 0) std::memcpy(one.to, one.from, one.bytes);
    }
  }
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) {
    if (slot != "fill") return Device::fill(to, byte, bytes, stream);
    if (bytes != 0) std::memset(to, byte, bytes);
  }
  void reduce(void* to, std::span<const void* const> from, pliant::sdk::Elements elements, pliant::sdk::ReduceOp op,
              double scale, Stream& stream) {
    if (slot != "reduce") return Device::reduce(to, from, elements, op, scale, stream);
    pliant::sdk::reduce(elements.dtype, op, from, scale, elements.count, to, nullptr);
  }
  void cast(void* to, pliant::sdk::DType to_type, const void* from, pliant::sdk::Elements elements, Stream& stream) {
    if (slot != "cast") return Device::cast(to, to_type, from, elements, stream);
    pliant::sdk::cast(elements.dtype, from, to_type, to, elements.count);
  }
};

}  // namespace

PLIANT_BROKEN(AtOnce, "at-once")
