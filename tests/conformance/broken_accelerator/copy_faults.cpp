// Faults of copies and fills.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <mutex>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// A copy of 0 bytes ends the process.
struct EmptyCrashes : Honest {
  using Honest::copy;
  void copy(void* to, const void* from, uint64_t bytes, Stream& stream) override {
    if (bytes == 0) std::raise(SIGSEGV);
    Device::copy(to, from, bytes, stream);
  }
};

/// It says that it has two devices. odd: an odd last byte is lost; large: what is past 32 MiB is lost; batch: of more
/// than 100 copies the last is lost; wraps: sizes have 32 bits; peer: nothing gets from one device to the other.
struct CopyWrong : Honest {
  int32_t device_count() override { return 2; }
  void* alloc(int32_t device, Memory memory, uint64_t bytes) override {
    void* made = Device::alloc(device, memory, bytes);
    const std::lock_guard lock(mutex);
    device_of[reinterpret_cast<uintptr_t>(made)] = memory == Memory::kDevice ? device : -1;
    return made;
  }
  int32_t where(const void* pointer) {
    const std::lock_guard lock(mutex);
    const auto found = device_of.find(reinterpret_cast<uintptr_t>(pointer));
    return found == device_of.end() ? -1 : found->second;
  }
  void copy(void* to, const void* from, uint64_t bytes, Stream& stream) override {
    if (way == "odd") bytes -= bytes % 2;
    if (way == "large") bytes = std::min<uint64_t>(bytes, uint64_t{32} << 20U);
    if (way == "wraps") bytes = static_cast<uint32_t>(bytes);
    if (way == "peer" && where(to) >= 0 && where(from) >= 0 && where(to) != where(from)) return;
    Device::copy(to, from, bytes, stream);
  }
  void copy(std::span<const pliant_copy> copies, Stream& stream) override {
    if (way == "batch" && copies.size() > 100) copies = copies.subspan(0, copies.size() - 1);
    Device::copy(copies, stream);
  }
  std::mutex mutex;
  std::map<uintptr_t, int32_t> device_of;  ///< by where memory begins
};

/// A fill of an odd number of bytes writes one byte too many.
struct FillOneMore : Honest {
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) override {
    Device::fill(to, byte, bytes + bytes % 2, stream);
  }
};

/// A fill of 0 bytes never ends.
struct EmptyHangs : Honest {
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) override {
    if (bytes != 0) return Device::fill(to, byte, bytes, stream);
    stream.enqueue([] {
      while (::pause() != 0) {
      }
    });
  }
};

}  // namespace

std::vector<Fault> copy_faults() {
  return {{"empty-crashes", {}, make<EmptyCrashes>},
          {"copy-wrong", {"odd", "large", "batch", "wraps", "peer"}, make<CopyWrong>},
          {"fill-one-more", {}, make<FillOneMore>},
          {"empty-hangs", {}, make<EmptyHangs>}};
}

}  // namespace pliant::broken
