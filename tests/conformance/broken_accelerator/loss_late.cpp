// BROKEN: the survivors of a lost rank are told late, by the option `late_ms`.
#include <chrono>
#include <thread>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct LossLate : Honest<LossLate> {
  int64_t late_ms = 300;

  static void options(pliant::sdk::Options<LossLate>& table) {
    table.add("late_ms", &LossLate::late_ms, "How late.").unit("ms").at_least(0);
  }
  using Device::synchronize;
  void synchronize(Stream& stream) {
    try {
      stream.synchronize();
    } catch (const pliant::sdk::Failure&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(late_ms));  // the fault itself
      throw;
    }
  }
};

}  // namespace

PLIANT_BROKEN(LossLate, "loss-late")
