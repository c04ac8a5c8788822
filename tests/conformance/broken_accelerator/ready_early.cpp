// BROKEN: comm_status says that a communicator is ready when it was only asked, and not waited for.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct ReadyEarly : Honest<ReadyEarly> {
  void wait_ready(Comm& comm, int32_t timeout_ms) {
    if (timeout_ms != 0) Device::wait_ready(comm, timeout_ms);
  }
};

}  // namespace

PLIANT_BROKEN(ReadyEarly, "ready-early")
