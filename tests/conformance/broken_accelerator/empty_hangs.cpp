// BROKEN: a fill of 0 bytes never ends.
#include <unistd.h>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct EmptyHangs : Honest<EmptyHangs> {
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) {
    if (bytes != 0) return Device::fill(to, byte, bytes, stream);
    stream.enqueue([] {
      while (::pause() != 0) {
      }
    });
  }
};

}  // namespace

PLIANT_BROKEN(EmptyHangs, "empty-hangs")
