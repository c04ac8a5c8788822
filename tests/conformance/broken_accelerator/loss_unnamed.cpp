// BROKEN: the survivors of a lost rank are not told which.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct LossUnnamed : Honest<LossUnnamed> {
  using Device::synchronize;
  void synchronize(Stream& stream) {
    try {
      stream.synchronize();
    } catch (const pliant::sdk::Failure& failure) {
      if (failure.status() != PLIANT_PEER_LOST) throw;
      throw pliant::sdk::Failure(PLIANT_PEER_LOST, "somebody is lost");
    }
  }
};

}  // namespace

PLIANT_BROKEN(LossUnnamed, "loss-unnamed")
