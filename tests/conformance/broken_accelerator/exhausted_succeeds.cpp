// BROKEN: when there is no memory left, alloc gives less than was asked for.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct ExhaustedSucceeds : Honest<ExhaustedSucceeds> {
  void* alloc(int32_t device, pliant::sdk::Memory memory, uint64_t bytes) {
    try {
      return Device::alloc(device, memory, bytes);
    } catch (const pliant::sdk::Failure&) {
      return Device::alloc(device, memory, 64);
    }
  }
};

}  // namespace

PLIANT_BROKEN(ExhaustedSucceeds, "exhausted-succeeds")
