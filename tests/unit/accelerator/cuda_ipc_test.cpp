// Memory of the accelerator cuda between processes; on the software runtime. What any accelerator promises of it is in
// ipc_test.cpp, and of events in ipc_event_test.cpp.
#include <cstring>
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

}  // namespace

TEST_CASE("memory of a device that another cannot reach is refused there") {
  const Setting devices("PLIANT_SOFT_CUDA_DEVICES", "2");
  const Setting peers("PLIANT_SOFT_CUDA_NO_PEERS", "1");
  const PairBody body = [](const Rank& self, const Wire& wire) -> std::string {
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
    const Outcome near = ipc.call(&pliant_ipc::import_memory, 0, &handle, &same);
    const Outcome far = ipc.call(&pliant_ipc::import_memory, 1, &handle, &other);
    close_descriptor(handle);
    ipc.release(same);
    self.board.flags[0].raise();
    if (!near.ok()) return near.text();
    const bool refused = far.status == PLIANT_UNIMPLEMENTED && other == nullptr;
    return refused && contains(far.message, "cannot access memory of the other") ? "" : far.text();
  };
  run_pair(body, software_cuda);
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

TEST_CASE("a handle is refused that is of an earlier process with the number of one that runs") {
  const PairBody body = [](const Rank& self, const Wire& wire) -> std::string {
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
    pliant_ipc_handle handle = wire.take(1);
    uint64_t process = 0;  // its number, and above that when it began
    std::memcpy(&process, handle.bytes + sizeof(uint64_t), sizeof(process));
    process -= uint64_t{1} << 22U;
    std::memcpy(handle.bytes + sizeof(uint64_t), &process, sizeof(process));
    void* memory = nullptr;
    const Outcome refused = ipc.call(&pliant_ipc::import_memory, 0, &handle, &memory);
    close_descriptor(handle);
    self.board.flags[0].raise();
    const bool right = refused.status == PLIANT_FAILED_PRECONDITION && memory == nullptr;
    return right && contains(refused.message, "has ended") ? "" : refused.text();
  };
  run_pair(body, software_cuda);
}

// In this process, and so after those whose ranks are forked from it.
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
