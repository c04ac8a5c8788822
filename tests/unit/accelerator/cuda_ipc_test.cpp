// Memory and events of the accelerator cuda between processes; on the software runtime. What any accelerator promises
// of memory is in ipc_test.cpp.
#include <atomic>
#include <functional>
#include <vector>

#include "cuda_device.hpp"
#include "handles.hpp"

using namespace pliant_test;

namespace {

using A = pliant_accelerator;

std::unique_ptr<Device> software_cuda(int32_t) {
  return std::make_unique<SoftwareCuda>();
}

/// Two processes, with a wire between them; what each returns must be "".
void run_pair(const std::function<std::string(const Rank&, const Wire&)>& body) {
  const Wire wire;
  Processes processes(
      2, [&](const Rank& self) { return body(self, wire); }, software_cuda);
  const std::vector<RankEnd> ends = processes.ends();
  for (size_t r = 0; r < ends.size(); ++r) {
    INFO("rank ", r);
    CHECK(ends[r].text == "");
  }
}

/// An event that is destroyed in time.
class SharedEvent {
 public:
  explicit SharedEvent(const Device& device) : device_(device) {
    keep(device.call(&A::event_create, 0, PLIANT_EVENT_EXPORTED, &handle_));
  }
  /// That of another process.
  SharedEvent(const Device& device, const pliant_ipc_handle& handle) : device_(device) {
    const Ipc ipc(device);
    keep(ipc.call(ipc.table().import_event, 0, &handle, &handle_));
    close_descriptor(handle);
  }
  ~SharedEvent() { device_.slots().event_destroy(device_.self(), handle_); }
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;
  operator pliant_event*() const { return handle_; }
  [[nodiscard]] pliant_ipc_handle exported() const {
    const Ipc ipc(device_);
    pliant_ipc_handle made{};
    keep(ipc.call(ipc.table().export_event, handle_, &made));
    return made;
  }
  [[nodiscard]] bool done() const {
    int32_t done = -1;
    keep(device_.call(&A::event_query, handle_, &done));
    return done == 1;
  }

 private:
  static void keep(const Outcome& outcome) {
    if (!outcome.ok()) throw std::runtime_error(outcome.text());
  }
  const Device& device_;
  pliant_event* handle_ = nullptr;
};

/// Host work that a stream stands still in until the flag is raised.
struct Gate {
  std::atomic<bool> open{false};
  static void wait(void* context) { static_cast<Gate*>(context)->open.wait(false); }
  void raise() {
    open = true;
    open.notify_all();
  }
};

/// Rank 1 waits on a stream for what rank 0 recorded, and then reads its memory. `late`: rank 0 records behind host
/// work, so that CUDA has the recording long after rank 1 was told of it.
std::string order_by_event(const Rank& self, const Wire& wire, bool late) {
  const Ipc ipc(self.device);
  constexpr uint64_t kBytes = 1 << 20;
  const Stream stream(self.device);
  if (self.rank == 0) {
    const SharedEvent event(self.device);
    void* memory = nullptr;
    if (!self.device.call(&A::alloc, 0, PLIANT_MEMORY_EXCHANGE, kBytes, &memory).ok()) return "alloc";
    for (const pliant_ipc_handle& one : {ipc.handle_to(memory), event.exported()}) {
      wire.pass(0, one);
      close_descriptor(one);
    }
    Gate gate;
    if (late && !self.device.call(&A::host_function, &Gate::wait, &gate, stream).ok()) return "host_function";
    if (!self.device.call(&A::fill_async, memory, 5, kBytes, stream).ok()) return "fill_async";
    if (!self.device.call(&A::event_record, event, stream).ok()) return "event_record";
    if (late && event.done()) return "an event behind host work counts as reached";
    self.board.flags[0].raise();  // recorded
    self.board.flags[1].wait();   // waited for
    gate.raise();
    const Outcome ended = stream.synchronize();
    self.board.flags[2].wait();
    self.device.slots().free(self.device.self(), 0, PLIANT_MEMORY_EXCHANGE, memory);
    return ended.ok() ? "" : ended.text();
  }
  const pliant_ipc_handle handle = wire.take(1);
  void* memory = nullptr;
  if (!ipc.import(handle, memory).ok()) return "import_memory";
  close_descriptor(handle);
  std::string fault;
  {
    const SharedEvent event(self.device, wire.take(1));
    self.board.flags[0].wait();
    if (late && event.done()) fault = "an event that its process has not given to CUDA counts as reached";
    if (!self.device.call(&A::stream_wait_event, stream, event).ok()) fault = "stream_wait_event";
    std::vector<unsigned char> read(kBytes);
    if (!self.device.call(&A::copy_async, read.data(), memory, kBytes, stream).ok()) fault = "copy_async";
    self.board.flags[1].raise();
    const Outcome ended = stream.synchronize();
    if (!ended.ok()) fault = ended.text();
    for (const unsigned char byte : read) {
      if (byte != 5 && fault.empty()) fault = "what was read is older than the event";
    }
    if (!event.done()) fault = "the event is not reached when a stream behind it is at its end";
    if (!self.device.call(&A::event_synchronize, event).ok()) fault = "event_synchronize";
  }
  ipc.release(memory);
  self.board.flags[2].raise();
  return fault;
}

}  // namespace

TEST_CASE("a stream of one process waits for an event that another has recorded") {
  const Setting seed("PLIANT_SOFT_CUDA_SEED", "3");
  const Setting delay("PLIANT_SOFT_CUDA_MAX_DELAY_US", "2000");
  for (int round = 0; round < 3; ++round) {
    run_pair([](const Rank& self, const Wire& wire) { return order_by_event(self, wire, false); });
  }
}

TEST_CASE("an event that is recorded behind host work is waited for by another process before CUDA has it") {
  run_pair([](const Rank& self, const Wire& wire) { return order_by_event(self, wire, true); });
}

TEST_CASE("an imported event is recorded, too, and the process that made it waits for that") {
  run_pair([](const Rank& self, const Wire& wire) -> std::string {
    const Stream stream(self.device);
    if (self.rank == 0) {
      const SharedEvent event(self.device);
      const bool blank = event.done();
      const pliant_ipc_handle handle = event.exported();
      wire.pass(0, handle);
      close_descriptor(handle);
      self.board.flags[0].wait();
      if (event.done()) return "an event counts as reached before the host work in front of it";
      self.board.flags[1].raise();
      const Outcome ended = self.device.call(&A::event_synchronize, event);
      if (!ended.ok()) return ended.text();
      const bool done = event.done();
      self.board.flags[2].wait();
      if (!blank) return "an event that was never recorded does not count as reached";
      return done ? "" : "an event that was waited for is not reached";
    }
    const SharedEvent event(self.device, wire.take(1));
    Gate gate;
    if (!self.device.call(&A::host_function, &Gate::wait, &gate, stream).ok()) return "host_function";
    const Outcome recorded = self.device.call(&A::event_record, event, stream);
    self.board.flags[0].raise();
    self.board.flags[1].wait();
    gate.raise();
    const Outcome ended = stream.synchronize();
    self.board.flags[2].raise();
    return recorded.ok() && ended.ok() ? "" : recorded.text() + ", " + ended.text();
  });
}

TEST_CASE("who waits for the recording of a process that dies is told") {
  const Wire wire;
  Processes processes(
      2,
      [&](const Rank& self) -> std::string {
        const Stream stream(self.device);
        if (self.rank == 0) {
          const SharedEvent event(self.device);
          wire.pass(0, event.exported());
          Gate gate;
          if (!self.device.call(&A::host_function, &Gate::wait, &gate, stream).ok()) return "host_function";
          if (!self.device.call(&A::event_record, event, stream).ok()) return "event_record";
          self.board.flags[0].raise();
          self.board.flags[7].wait();  // for ever
          return "";
        }
        const SharedEvent event(self.device, wire.take(1));
        self.board.flags[0].wait();
        if (!self.device.call(&A::stream_wait_event, stream, event).ok()) return "stream_wait_event";
        self.board.flags[1].raise();
        return stream.synchronize().text();
      },
      software_cuda);
  processes.board().flags[1].wait();
  processes.kill(0);
  const std::string told = processes.end_of(1).text;
  CHECK(contains(told, std::to_string(PLIANT_PEER_LOST) + ": "));
  CHECK(contains(told, "which was to record an event that passes between processes, has ended"));
  CHECK(processes.end_of(0).killed());
}

TEST_CASE("an event that its process has destroyed is refused by the others") {
  run_pair([](const Rank& self, const Wire& wire) -> std::string {
    if (self.rank == 0) {
      {
        const SharedEvent event(self.device);
        for (int i = 0; i < 2; ++i) {
          const pliant_ipc_handle handle = event.exported();
          wire.pass(0, handle);
          close_descriptor(handle);
        }
        self.board.flags[0].wait();
      }
      self.board.flags[1].raise();
      self.board.flags[2].wait();
      return "";
    }
    const Stream stream(self.device);
    const SharedEvent event(self.device, wire.take(1));
    const pliant_ipc_handle late = wire.take(1);
    self.board.flags[0].raise();
    self.board.flags[1].wait();
    const Ipc ipc(self.device);
    pliant_event* none = nullptr;
    const Outcome imported = ipc.call(ipc.table().import_event, 0, &late, &none);
    close_descriptor(late);
    const Outcome waited = self.device.call(&A::stream_wait_event, stream, event);
    self.board.flags[2].raise();
    for (const Outcome& one : {imported, waited}) {
      if (one.status != PLIANT_FAILED_PRECONDITION || !contains(one.message, "has destroyed it")) return one.text();
    }
    return none == nullptr ? "" : "a refused import gave an event";
  });
}

TEST_CASE("memory of a device that another cannot reach is refused there") {
  const Setting devices("PLIANT_SOFT_CUDA_DEVICES", "2");
  const Setting peers("PLIANT_SOFT_CUDA_NO_PEERS", "1");
  run_pair([](const Rank& self, const Wire& wire) -> std::string {
    const Ipc ipc(self.device);
    if (self.rank == 0) {
      void* memory = nullptr;
      if (!self.device.call(&A::alloc, 0, PLIANT_MEMORY_EXCHANGE, 64, &memory).ok()) return "alloc";
      const pliant_ipc_handle handle = ipc.handle_to(memory);
      wire.pass(0, handle);
      close_descriptor(handle);
      self.board.flags[0].wait();
      self.device.slots().free(self.device.self(), 0, PLIANT_MEMORY_EXCHANGE, memory);
      return "";
    }
    const pliant_ipc_handle handle = wire.take(1);
    void* same = nullptr;
    void* other = nullptr;
    const Outcome near = ipc.call(ipc.table().import_memory, 0, &handle, &same);
    const Outcome far = ipc.call(ipc.table().import_memory, 1, &handle, &other);
    close_descriptor(handle);
    ipc.release(same);
    self.board.flags[0].raise();
    if (!near.ok()) return near.text();
    const bool refused = far.status == PLIANT_UNIMPLEMENTED && other == nullptr;
    return refused && contains(far.message, "cannot reach memory of the other") ? "" : far.text();
  });
}

TEST_CASE("the software runtime notices memory that is freed while another process has it open") {
  const Wire wire;
  Processes processes(
      2,
      [&](const Rank& self) -> std::string {
        const Ipc ipc(self.device);
        if (self.rank == 0) {
          void* memory = nullptr;
          if (!self.device.call(&A::alloc, 0, PLIANT_MEMORY_EXCHANGE, 64, &memory).ok()) return "alloc";
          wire.pass(0, ipc.handle_to(memory));
          self.board.flags[0].wait();
          self.device.slots().free(self.device.self(), 0, PLIANT_MEMORY_EXCHANGE, memory);
          self.board.flags[1].raise();
          return software_cuda_counts().first_violation;
        }
        void* memory = nullptr;
        if (!ipc.import(wire.take(1), memory).ok()) return "import";
        self.board.flags[0].raise();
        self.board.flags[1].wait();
        ipc.release(memory);
        return "";
      },
      software_cuda);
  CHECK(processes.end_of(0).text == "memory was freed while another process has it open");
  CHECK(processes.end_of(1).text == "");
}

// In this process, and so after those whose ranks are forked from it.
TEST_CASE("events that cannot be exported or imported are refused with the reason") {
  const SoftwareCuda device;
  const Ipc ipc(device);
  const Event plain(device);
  pliant_ipc_handle handle{};
  const Outcome unasked = ipc.call(ipc.table().export_event, static_cast<pliant_event*>(plain), &handle);
  CHECK(unasked.status == PLIANT_INVALID_ARGUMENT);
  CHECK(contains(unasked.message, "without PLIANT_EVENT_EXPORTED"));
  const SharedEvent event(device);
  handle = event.exported();
  pliant_event* none = nullptr;
  const Outcome own = ipc.call(ipc.table().import_event, 0, &handle, &none);
  CHECK(own.status == PLIANT_FAILED_PRECONDITION);
  CHECK(contains(own.message, "the event is of this very process"));
  void* memory = nullptr;
  CHECK(contains(ipc.import(handle, memory).message, "the handle is none of the memory of cuda"));
  close_descriptor(handle);
  double seconds = 0;
  CHECK(device.call(&A::event_elapsed, event, event, &seconds).status == PLIANT_FAILED_PRECONDITION);
}

TEST_CASE("exchange memory takes whole blocks, so that a handle shows nothing else") {
  constexpr int64_t kBlock = 2 << 20;
  const SoftwareCuda device({{{"memory_bytes", 3 * kBlock}}, {}, {}, {}});
  void* small = nullptr;
  REQUIRE(device.alloc(100, &small, 0, PLIANT_MEMORY_EXCHANGE).ok());
  uint64_t free_bytes = 0;
  uint64_t all = 0;
  REQUIRE(device.call(&A::memory_info, 0, &free_bytes, &all).ok());
  CHECK(free_bytes == 2 * kBlock);
  void* none = nullptr;
  CHECK(device.alloc(2 * kBlock + 1, &none, 0, PLIANT_MEMORY_EXCHANGE).status == PLIANT_RESOURCE_EXHAUSTED);
  close_descriptor(Ipc(device).handle_to(small));
  device.free(small);
  REQUIRE(device.call(&A::memory_info, 0, &free_bytes, &all).ok());
  CHECK(free_bytes == all);
}

TEST_CASE("a device whose memory does not pass between processes says so") {
  const Setting none("PLIANT_SOFT_CUDA_NO_IPC", "1");
  const SoftwareCuda device;
  pliant_device_properties properties{};
  properties.struct_size = sizeof(properties);
  REQUIRE(device.call(&A::device_properties, 0, &properties).ok());
  CHECK((properties.capabilities & PLIANT_CAP_EXCHANGE_MEMORY) == 0);
  CHECK(device.extension(PLIANT_IPC) == nullptr);
  void* memory = nullptr;
  CHECK(device.alloc(100, &memory, 0, PLIANT_MEMORY_EXCHANGE).status == PLIANT_UNIMPLEMENTED);
  pliant_event* event = nullptr;
  CHECK(device.call(&A::event_create, 0, PLIANT_EVENT_EXPORTED, &event).status == PLIANT_UNIMPLEMENTED);
}
