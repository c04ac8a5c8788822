// BROKEN: memory is aligned to 8 bytes.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct AllocUnaligned : Honest<AllocUnaligned> {
  void* alloc(int32_t device, pliant::sdk::Memory memory, uint64_t bytes) {
    constexpr uint64_t kHuge = uint64_t{1} << 40U;
    return static_cast<char*>(Device::alloc(device, memory, bytes < kHuge ? bytes + 8 : bytes)) + 8;
  }
  void free(int32_t device, pliant::sdk::Memory memory, void* pointer) {
    Device::free(device, memory, static_cast<char*>(pointer) - 8);
  }
};

}  // namespace

PLIANT_BROKEN(AllocUnaligned, "alloc-unaligned")
