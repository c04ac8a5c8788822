// BROKEN: a host function runs twice.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct CallTwice : Honest<CallTwice> {
  void call(void (*function)(void*), void* context, Stream& stream) {
    Device::call(function, context, stream);
    Device::call(function, context, stream);
  }
};

}  // namespace

PLIANT_BROKEN(CallTwice, "call-twice")
