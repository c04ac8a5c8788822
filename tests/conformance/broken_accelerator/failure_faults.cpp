// Faults of what ranks are told when something fails.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// comm_abort does nothing.
struct AbortForgets : Honest {
  void abort(Comm&) override {}
};

/// Who destroys a communicator that not all have joined does not tell those who come.
struct LeaveUntold : Honest {
  using Honest::destroy;
  void destroy(std::unique_ptr<Comm> comm) override {
    try {
      comm->wait_ready(0);
    } catch (const Failure& failure) {
      if (failure.status() == PLIANT_DEADLINE_EXCEEDED) static_cast<void>(comm.release());  // it stays for ever
    }
  }
};

/// The survivors of a lost rank are told which in words alone.
struct LossUnnamed : Honest {
  using Honest::synchronize;
  void synchronize(Stream& stream) override {
    try {
      stream.synchronize();
    } catch (const Failure& failure) {
      if (failure.status() != PLIANT_PEER_LOST) throw;
      throw failure.about_rank(-1);
    }
  }
};

/// The survivors of a lost rank are told late, after as many milliseconds as its way says.
struct LossLate : Honest {
  using Honest::synchronize;
  void synchronize(Stream& stream) override {
    try {
      stream.synchronize();
    } catch (const Failure&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(way)));  // the fault itself
      throw;
    }
  }
};

/// After one failure an instance makes no communicator any more.
struct FailureLasts : Honest {
  using Honest::synchronize;
  void synchronize(Stream& stream) override {
    try {
      Device::synchronize(stream);
    } catch (const Failure&) {
      failed = true;
      throw;
    }
  }
  pliant_comm_id make_comm_id(int32_t world_size) override {
    if (failed) throw Failure(PLIANT_INTERNAL, "a communicator has failed before");
    return Device::make_comm_id(world_size);
  }
  std::atomic<bool> failed{false};
};

/// A broadcast moves bytes, and does not see that the types differ.
struct BroadcastUntyped : Honest {
  void broadcast(Comm& comm, void* buffer, Elements elements, int32_t root, Stream& stream) override {
    Device::broadcast(comm, buffer, {elements.bytes(), DType::kU8}, root, stream);
  }
};

/// Ranks that disagree are told which in words alone.
struct MismatchUnnamed : Honest {
  using Honest::synchronize;
  void synchronize(Stream& stream) override {
    try {
      stream.synchronize();
    } catch (const Failure& failure) {
      if (failure.status() != PLIANT_INVALID_ARGUMENT) throw;
      throw failure.about_rank(-1);
    }
  }
};

}  // namespace

std::vector<Fault> failure_faults() {
  return {{"abort-forgets", {}, make<AbortForgets>},      {"leave-untold", {}, make<LeaveUntold>},
          {"loss-unnamed", {}, make<LossUnnamed>},        {"loss-late", {"300", "6000"}, make<LossLate>},
          {"failure-lasts", {}, make<FailureLasts>},      {"broadcast-untyped", {}, make<BroadcastUntyped>},
          {"mismatch-unnamed", {}, make<MismatchUnnamed>}};
}

}  // namespace pliant::broken
