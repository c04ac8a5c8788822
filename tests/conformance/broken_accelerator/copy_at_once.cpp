// BROKEN: a copy runs at once, not in stream order.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct CopyAtOnce : Honest<CopyAtOnce> {
  using Device::copy;
  void copy(void* to, const void* from, uint64_t bytes, Stream&) {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
};

}  // namespace

PLIANT_BROKEN(CopyAtOnce, "copy-at-once")
