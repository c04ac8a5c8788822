// BROKEN: when there is no memory left, alloc speaks of an internal error.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct ExhaustedInternal : Honest<ExhaustedInternal> {
  void* alloc(int32_t device, pliant::sdk::Memory memory, uint64_t bytes) {
    try {
      return Device::alloc(device, memory, bytes);
    } catch (const pliant::sdk::Failure& failure) {
      throw pliant::sdk::Failure(PLIANT_INTERNAL, failure.what());
    }
  }
};

}  // namespace

PLIANT_BROKEN(ExhaustedInternal, "exhausted-internal")
