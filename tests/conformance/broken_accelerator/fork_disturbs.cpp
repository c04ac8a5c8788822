// BROKEN: a process that has forked is refused.
#include <pthread.h>

#include <atomic>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

std::atomic<int> forks{0};

struct ForkDisturbs : Honest<ForkDisturbs> {
  ForkDisturbs() {
    ::pthread_atfork(
        nullptr, [] { ++forks; }, nullptr);
  }
  using Device::synchronize;
  void synchronize(Stream& stream) {
    if (forks != 0) throw pliant::sdk::Failure(PLIANT_INTERNAL, "this process has forked");
    Device::synchronize(stream);
  }
};

}  // namespace

PLIANT_BROKEN(ForkDisturbs, "fork-disturbs")
