// BROKEN: stream_wait_event does nothing.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct WaitForgets : Honest<WaitForgets> {
  void wait(Stream&, Event&) {}
};

}  // namespace

PLIANT_BROKEN(WaitForgets, "wait-forgets")
