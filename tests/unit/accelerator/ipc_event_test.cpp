// Events of one process in another, of any accelerator whose events pass between processes.
#include <functional>
#include <memory>
#include <vector>

#include "handles.hpp"

using namespace pliant_test;

namespace {

using A = pliant_accelerator;

/// An event that is exported, or was imported.
class PassedEvent {
 public:
  explicit PassedEvent(const Device& device) : device_(device) {
    const Outcome made = device.call(&A::event_create, 0, PLIANT_EVENT_EXPORTED, &handle_);
    if (!made.ok()) throw std::runtime_error("event_create: " + made.text());
  }
  PassedEvent(const Device& device, const pliant_ipc_handle& handle) : device_(device) {
    const Ipc ipc(device);
    const Outcome made = ipc.call(&pliant_ipc::import_event, 0, &handle, &handle_);
    close_descriptor(handle);
    if (!made.ok()) throw std::runtime_error("import_event: " + made.text());
  }
  ~PassedEvent() { device_.slots().event_destroy(device_.self(), handle_); }
  PassedEvent(const PassedEvent&) = delete;
  PassedEvent& operator=(const PassedEvent&) = delete;

  [[nodiscard]] pliant_ipc_handle exported() const {
    const Ipc ipc(device_);
    pliant_ipc_handle handle{};
    const Outcome made = ipc.call(&pliant_ipc::export_event, handle_, &handle);
    if (!made.ok()) throw std::runtime_error("export_event: " + made.text());
    return handle;
  }
  [[nodiscard]] Outcome record(const Stream& stream) const {
    return device_.call(&A::event_record, handle_, static_cast<pliant_stream*>(stream));
  }
  [[nodiscard]] Outcome wait(const Stream& stream) const {
    return device_.call(&A::stream_wait_event, static_cast<pliant_stream*>(stream), handle_);
  }
  [[nodiscard]] Outcome synchronize() const { return device_.call(&A::event_synchronize, handle_); }
  [[nodiscard]] bool done() const {
    int32_t done = -1;
    if (!device_.call(&A::event_query, handle_, &done).ok()) throw std::runtime_error("event_query");
    return done != 0;
  }

 private:
  const Device& device_;
  pliant_event* handle_ = nullptr;
};

/// Holds a stream until the flag, which another process may raise.
void hold(const Device& device, const Stream& stream, Flag& flag) {
  const Outcome held = device.call(
      &A::host_function, +[](void* flag_to_wait_for) { static_cast<Flag*>(flag_to_wait_for)->wait(); },
      static_cast<void*>(&flag), static_cast<pliant_stream*>(stream));
  if (!held.ok()) throw std::runtime_error("host_function: " + held.text());
}

/// As run_pair; rank 0 is killed when rank 1 has raised flag 7.
void run_to_death(const PairBody& body, const std::function<std::unique_ptr<Device>(int32_t)>& make = tested_device) {
  static_cast<void>(tested_file());
  const Wire wire;
  Processes processes(
      2, [&](const Rank& self) { return body(self, wire); }, make);
  processes.board().flags[7].wait();
  processes.kill(0);
  CHECK(processes.end_of(0).killed());
  CHECK(processes.end_of(1).text == "");
}

std::string expect_aborted(const Outcome& outcome, const std::string& words) {
  const bool well = outcome.status == PLIANT_ABORTED && outcome.message.find(words) != std::string::npos;
  return well ? "" : outcome.text();
}

}  // namespace

TEST_CASE("recordings that nobody reaches are refused when there is no room, and accepted again when there is") {
  const Device device;
  const PassedEvent event(device);
  Flag gate;
  const Stream stream(device);
  hold(device, stream, gate);
  Outcome refused;
  int taken = 0;
  while ((refused = event.record(stream)).ok() && taken < 5000) ++taken;
  CHECK(taken >= 64);
  CHECK(refused.status == PLIANT_RESOURCE_EXHAUSTED);
  CHECK(refused.message.find("synchronize first") != std::string::npos);
  gate.raise();
  CHECK(stream.synchronize().ok());
  for (int i = 0; i < 3 * taken; ++i) {
    REQUIRE(event.record(stream).ok());
    if (i % 16 == 0) REQUIRE(stream.synchronize().ok());
  }
  CHECK(event.synchronize().ok());
  CHECK(event.done());
}

TEST_CASE("an exported event is an event as any other in its own process") {
  const Device device;
  const PassedEvent event(device);
  Flag gate;
  const Stream first(device);
  const Stream second(device);
  CHECK(event.done());
  hold(device, first, gate);
  REQUIRE(event.record(first).ok());
  REQUIRE(event.wait(second).ok());
  CHECK_FALSE(event.done());
  gate.raise();
  CHECK(second.synchronize().ok());
  CHECK(event.done());
  CHECK(first.synchronize().ok());
}

TEST_CASE("what was reached before its process was killed is reached, and what came later is told") {
  run_to_death([](const Rank& self, const Wire& wire) -> std::string {
    if (self.rank == 0) {
      const PassedEvent early(self.device);
      const PassedEvent late(self.device);
      const Stream stream(self.device);
      wire.pass(0, early.exported());
      wire.pass(0, late.exported());
      if (!early.record(stream).ok() || !stream.synchronize().ok()) return "early";
      hold(self.device, stream, self.board.flags[1]);
      if (!late.record(stream).ok()) return "late";
      self.board.flags[0].raise();
      self.board.flags[2].wait();  // for ever
      return "";
    }
    const PassedEvent early(self.device, wire.take(1));
    const PassedEvent late(self.device, wire.take(1));
    self.board.flags[0].wait();
    const Stream stream(self.device);
    const Stream other(self.device);
    if (!late.wait(stream).ok()) return "stream_wait_event";
    if (late.done()) return "an event is done that was not reached";
    self.board.flags[7].raise();
    std::string fault = expect_aborted(stream.synchronize(), "ended before the event");
    if (fault.empty()) fault = expect_aborted(late.synchronize(), "ended before the event");
    if (fault.empty() && !stream.synchronize().ok()) fault = "the stream tells it twice";
    if (!early.wait(other).ok() || !other.synchronize().ok()) fault += " early, on the stream";
    if (!early.synchronize().ok()) fault += " early, on the host";
    if (late.wait(other).ok()) {
      if (fault.empty()) fault = expect_aborted(other.synchronize(), "ended before the event");
    }
    return fault;
  });
}

TEST_CASE("many recordings are seen in order by a process that waits for each") {
  constexpr uint32_t kRounds = 300;
  run_pair([](const Rank& self, const Wire& wire) -> std::string {
    const Stream stream(self.device);
    if (self.rank == 0) {
      const PassedEvent event(self.device);
      wire.pass(0, event.exported());
      for (uint32_t round = 1; round <= kRounds; ++round) {
        if (!event.record(stream).ok()) return "round " + std::to_string(round);
        self.board.flags[0].raise(round);
        self.board.flags[1].wait(round);
      }
      return stream.synchronize().ok() ? "" : "synchronize";
    }
    const PassedEvent event(self.device, wire.take(1));
    for (uint32_t round = 1; round <= kRounds; ++round) {
      self.board.flags[0].wait(round);
      if (!event.wait(stream).ok()) return "wait " + std::to_string(round);
      if (round % 3 == 0 && !event.synchronize().ok()) return "synchronize " + std::to_string(round);
      self.board.flags[1].raise(round);
    }
    const Outcome end = stream.synchronize();
    return end.ok() ? "" : end.text();
  });
}

TEST_CASE("handles of events that are damaged, blank or without their descriptor are refused in words") {
  run_pair([](const Rank& self, const Wire& wire) -> std::string {
    if (self.rank == 0) {
      const PassedEvent event(self.device);
      wire.pass(0, event.exported());
      self.board.flags[0].wait();
      return "";
    }
    const Ipc ipc(self.device);
    const pliant_ipc_handle handle = wire.take(1);
    std::string fault;
    const auto refused = [&](pliant_ipc_handle damaged, const char* words) {
      pliant_event* event = nullptr;
      const Outcome outcome = ipc.call(&pliant_ipc::import_event, 0, &damaged, &event);
      if (outcome.message.find(words) == std::string::npos || event != nullptr) fault += outcome.text() + "; ";
    };
    refused({}, "the handle is blank");
    pliant_ipc_handle damaged = handle;
    damaged.bytes[0] = static_cast<uint8_t>(damaged.bytes[0] + 1);
    refused(damaged, "the handle is of no event of this accelerator");
    damaged = handle;
    damaged.descriptor = -1;
    refused(damaged, "pass it as SCM_RIGHTS");
    damaged.descriptor = 1;
    refused(damaged, "is not that of the handle");
    close_descriptor(handle);
    self.board.flags[0].raise();
    return fault;
  });
}

TEST_CASE("work that fails before an event is told in the processes that wait for it") {
  const auto make = [](int32_t rank) {
    OptionSettings settings;
    if (rank == 0) settings.integers["lose_device_at"] = 1;
    return std::make_unique<Device>(settings, kSimFile);
  };
  run_pair(
      [](const Rank& self, const Wire& wire) -> std::string {
        if (self.rank == 0) {
          const PassedEvent event(self.device);
          const Stream stream(self.device);
          wire.pass(0, event.exported());
          hold(self.device, stream, self.board.flags[0]);
          char byte = 0;
          Outcome outcome =
              self.device.call(&A::fill_async, static_cast<void*>(&byte), 1, 1, static_cast<pliant_stream*>(stream));
          if (!outcome.ok()) return "fill: " + outcome.text();
          if (outcome = event.record(stream); !outcome.ok()) return "record: " + outcome.text();
          self.board.flags[1].raise();
          self.board.flags[2].wait();
          self.board.flags[0].raise();
          self.board.flags[3].wait();
          return "";
        }
        const PassedEvent event(self.device, wire.take(1));
        const Stream stream(self.device);
        self.board.flags[1].wait();
        if (!event.wait(stream).ok()) return "stream_wait_event";
        self.board.flags[2].raise();
        std::string fault = expect_aborted(stream.synchronize(), "work before the event failed in process");
        if (fault.empty()) fault = expect_aborted(event.synchronize(), "work before the event failed in process");
        self.board.flags[3].raise();
        return fault;
      },
      make);
}

#ifdef PLIANT_SOFT_LEVEL_ZERO
TEST_CASE("level_zero: a queue that waits for another process goes on when that is killed") {
  use_software_driver();
  const auto make = [](int32_t rank) {
    if (rank == 0) {  // its work takes ten seconds, all of it on the device
      ::setenv("PLIANT_SOFT_ZE_SEED", "7", 1);
      ::setenv("PLIANT_SOFT_ZE_MAX_DELAY_US", "500000", 1);
    } else {
      ::unsetenv("PLIANT_SOFT_ZE_MAX_DELAY_US");
    }
    return std::make_unique<Device>(OptionSettings{}, kLevelZeroFile);
  };
  run_to_death(
      [](const Rank& self, const Wire& wire) -> std::string {
        if (self.rank == 0) {
          const PassedEvent event(self.device);
          const Stream stream(self.device);
          void* memory = nullptr;
          if (!self.device.call(&A::alloc, 0, PLIANT_MEMORY_DEVICE, 64, &memory).ok()) return "alloc";
          for (int i = 0; i < 40; ++i) {
            if (!self.device.call(&A::fill_async, memory, i, 64, static_cast<pliant_stream*>(stream)).ok()) {
              return "fill";
            }
          }
          if (!event.record(stream).ok()) return "record";
          wire.pass(0, event.exported());
          self.board.flags[2].wait();  // for ever
          return "";
        }
        const PassedEvent event(self.device, wire.take(1));
        const Stream stream(self.device);
        void* memory = nullptr;
        if (!self.device.call(&A::alloc, 0, PLIANT_MEMORY_DEVICE, 64, &memory).ok()) return "alloc";
        if (!event.wait(stream).ok()) return "stream_wait_event";
        if (!self.device.call(&A::fill_async, memory, 1, 64, static_cast<pliant_stream*>(stream)).ok()) return "fill";
        self.board.flags[7].raise();
        std::string fault = expect_aborted(stream.synchronize(), "ended before the event");
        if (fault.empty()) fault = expect_aborted(event.synchronize(), "ended before the event");
        self.device.slots().free(self.device.self(), 0, PLIANT_MEMORY_DEVICE, memory);
        return fault;
      },
      make);
}

TEST_CASE("level_zero: where the driver does not pass events on, none is made for it") {
  use_software_driver();
  const Setting none("PLIANT_SOFT_ZE_EVENT_IPC", "0");
  const Device device({}, kLevelZeroFile);
  pliant_event* event = nullptr;
  const Outcome made = device.call(&A::event_create, 0, PLIANT_EVENT_EXPORTED, &event);
  CHECK(made.status == PLIANT_UNIMPLEMENTED);
  CHECK(made.message.find("without PLIANT_EVENT_EXPORTED") != std::string::npos);
  CHECK(event == nullptr);
}

TEST_CASE("level_zero: an event of a process that sees other devices is refused with what to do") {
  use_software_driver();
  const auto make = [](int32_t rank) {
    ::setenv("PLIANT_SOFT_ZE_DEVICES", rank == 0 ? "2" : "1", 1);
    return std::make_unique<Device>(OptionSettings{}, kLevelZeroFile);
  };
  run_pair(
      [](const Rank& self, const Wire& wire) -> std::string {
        if (self.rank == 0) {
          const PassedEvent event(self.device);
          wire.pass(0, event.exported());
          self.board.flags[0].wait();
          return "";
        }
        const Ipc ipc(self.device);
        const pliant_ipc_handle handle = wire.take(1);
        pliant_event* event = nullptr;
        const Outcome outcome = ipc.call(&pliant_ipc::import_event, 0, &handle, &event);
        close_descriptor(handle);
        self.board.flags[0].raise();
        return outcome.status == PLIANT_FAILED_PRECONDITION &&
                       outcome.message.find("ZE_AFFINITY_MASK") != std::string::npos
                   ? ""
                   : outcome.text();
      },
      make);
}
#endif
