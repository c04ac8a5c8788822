// BROKEN: after one failure an instance makes no communicator any more.
#include <atomic>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct FailureLasts : Honest<FailureLasts> {
  using Device::synchronize;
  void synchronize(Stream& stream) {
    try {
      Device::synchronize(stream);
    } catch (const pliant::sdk::Failure&) {
      failed = true;
      throw;
    }
  }
  pliant_comm_id make_comm_id(int32_t world_size) {
    if (failed) throw pliant::sdk::Failure(PLIANT_INTERNAL, "a communicator has failed before");
    return Device::make_comm_id(world_size);
  }
  std::atomic<bool> failed{false};
};

}  // namespace

PLIANT_BROKEN(FailureLasts, "failure-lasts")
