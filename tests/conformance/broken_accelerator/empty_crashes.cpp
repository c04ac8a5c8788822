// BROKEN: a copy of 0 bytes ends the process.
#include <csignal>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct EmptyCrashes : Honest<EmptyCrashes> {
  using Device::copy;
  void copy(void* to, const void* from, uint64_t bytes, Stream& stream) {
    if (bytes == 0) std::raise(SIGSEGV);
    Device::copy(to, from, bytes, stream);
  }
};

}  // namespace

PLIANT_BROKEN(EmptyCrashes, "empty-crashes")
