// BROKEN: copies are wrong in one way, the option `fault`. It says that it has two devices.
#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct CopyWrong : Honest<CopyWrong> {
  std::string fault = "odd";
  std::mutex mutex;
  std::map<uintptr_t, int32_t> device_of;  ///< by where memory begins

  static void options(pliant::sdk::Options<CopyWrong>& table) {
    table
        .add("fault", &CopyWrong::fault,
             "odd: an odd last byte is lost; large: what is past 32 MiB is lost; batch: of more than 100 copies the "
             "last is lost; wraps: sizes have 32 bits; peer: nothing gets from one device to the other.")
        .choices({"odd", "large", "batch", "wraps", "peer"});
  }
  int32_t device_count() { return 2; }
  void* alloc(int32_t device, pliant::sdk::Memory memory, uint64_t bytes) {
    void* made = Device::alloc(device, memory, bytes);
    const std::lock_guard lock(mutex);
    device_of[reinterpret_cast<uintptr_t>(made)] = memory == pliant::sdk::Memory::kDevice ? device : -1;
    return made;
  }
  int32_t where(const void* pointer) {
    const std::lock_guard lock(mutex);
    const auto found = device_of.find(reinterpret_cast<uintptr_t>(pointer));
    return found == device_of.end() ? -1 : found->second;
  }
  void copy(void* to, const void* from, uint64_t bytes, Stream& stream) {
    if (fault == "odd") bytes -= bytes % 2;
    if (fault == "large") bytes = std::min<uint64_t>(bytes, uint64_t{32} << 20U);
    if (fault == "wraps") bytes = static_cast<uint32_t>(bytes);
    if (fault == "peer" && where(to) >= 0 && where(from) >= 0 && where(to) != where(from)) return;
    Device::copy(to, from, bytes, stream);
  }
  void copy(std::span<const pliant_copy> copies, Stream& stream) {
    if (fault == "batch" && copies.size() > 100) copies = copies.subspan(0, copies.size() - 1);
    Device::copy(copies, stream);
  }
};

}  // namespace

PLIANT_BROKEN(CopyWrong, "copy-wrong")
