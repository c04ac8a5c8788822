// BROKEN: ranks that disagree are told so, and not which.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct MismatchUnnamed : Honest<MismatchUnnamed> {
  using Device::synchronize;
  void synchronize(Stream& stream) {
    try {
      stream.synchronize();
    } catch (const pliant::sdk::Failure& failure) {
      if (failure.status() != PLIANT_INVALID_ARGUMENT) throw;
      throw pliant::sdk::Failure(PLIANT_INVALID_ARGUMENT, "the ranks disagree");
    }
  }
};

}  // namespace

PLIANT_BROKEN(MismatchUnnamed, "mismatch-unnamed")
