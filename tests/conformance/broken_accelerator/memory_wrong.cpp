// BROKEN: memory is wrong in one way, the option `fault`.
#include <sys/mman.h>

#include <atomic>
#include <string>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)
using pliant::sdk::Failure;
using pliant::sdk::Memory;

constexpr uint64_t kPage = 4096;

struct MemoryWrong : Honest<MemoryWrong> {
  std::string fault = "shared";
  void* last = nullptr;
  std::atomic<bool> was_full{false};

  static void options(pliant::sdk::Options<MemoryWrong>& table) {
    table
        .add("fault", &MemoryWrong::fault,
             "shared: 75 bytes lie in the piece before; empty: 0 bytes are refused; double: memory_info tells of twice "
             "the free memory; constant: it tells the same whatever was taken; full: after one refusal all is "
             "refused; sum: what is too much beside other memory is an internal error; pinned: a page of pinned memory "
             "cannot be written; unshared: shared memory is claimed and "
             "cannot be "
             "written.")
        .choices({"shared", "empty", "double", "constant", "full", "sum", "pinned", "unshared"});
  }
  pliant::sdk::DeviceProperties device_properties(int32_t device) {
    pliant::sdk::DeviceProperties made = Device::device_properties(device);
    if (fault == "unshared") made.capabilities |= PLIANT_CAP_SHARED_MEMORY;
    return made;
  }
  void* alloc(int32_t device, Memory memory, uint64_t bytes) {
    if (memory == Memory::kShared) {
      return ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (fault == "shared" && bytes == 75 && last != nullptr) return last;
    if (fault == "empty" && bytes == 0) throw Failure(PLIANT_INVALID_ARGUMENT, "nothing is wanted");
    if (was_full) throw Failure(PLIANT_RESOURCE_EXHAUSTED, "out of memory for good");
    if (fault == "pinned" && memory == Memory::kPinned && bytes == kPage) {
      return ::mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    try {
      return last = Device::alloc(device, memory, bytes);
    } catch (const Failure&) {
      was_full = fault == "full";
      if (fault == "sum" && bytes <= memory_info(device).total_bytes) throw Failure(PLIANT_INTERNAL, "too much");
      throw;
    }
  }
  pliant::sdk::MemoryInfo memory_info(int32_t device) {
    pliant::sdk::MemoryInfo made = Device::memory_info(device);
    if (fault == "double") made.free_bytes *= 2;
    if (fault == "constant") made.free_bytes = made.total_bytes;
    return made;
  }
};

}  // namespace

PLIANT_BROKEN(MemoryWrong, "memory-wrong")
