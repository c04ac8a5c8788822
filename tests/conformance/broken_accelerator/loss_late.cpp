// BROKEN: the survivors of a lost rank are told 300 ms late.
#include <chrono>
#include <thread>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct LossLate : Honest<LossLate> {
  using Device::synchronize;
  void synchronize(Stream& stream) {
    try {
      stream.synchronize();
    } catch (const pliant::sdk::Failure&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the fault itself
      throw;
    }
  }
};

}  // namespace

PLIANT_BROKEN(LossLate, "loss-late")
