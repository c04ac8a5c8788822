// Memory of one process in another, of any accelerator that has pliant.ipc/0.
#include <algorithm>
#include <vector>

#include "handles.hpp"

using namespace pliant_test;

namespace {

using A = pliant_accelerator;
constexpr uint64_t kBytes = 300 * 1000;

/// Exchange memory that is freed in time.
class Exchanged {
 public:
  explicit Exchanged(const Device& device, uint64_t bytes = kBytes) : device_(device) {
    const Outcome made = device.call(&A::alloc, 0, PLIANT_MEMORY_EXCHANGE, bytes, &pointer_);
    if (!made.ok()) throw std::runtime_error("alloc: " + made.text());
  }
  ~Exchanged() { device_.slots().free(device_.self(), 0, PLIANT_MEMORY_EXCHANGE, pointer_); }
  Exchanged(const Exchanged&) = delete;
  Exchanged& operator=(const Exchanged&) = delete;
  [[nodiscard]] void* at() const { return pointer_; }

 private:
  const Device& device_;
  void* pointer_ = nullptr;
};

void fill(const Device& device, void* memory, int32_t byte, uint64_t bytes = kBytes) {
  const Stream stream(device);
  Outcome outcome = device.call(&A::fill_async, memory, byte, bytes, stream);
  if (outcome.ok()) outcome = stream.synchronize();
  if (!outcome.ok()) throw std::runtime_error("fill: " + outcome.text());
}

/// "" when all bytes are `byte`.
std::string holds(const Device& device, const void* memory, int byte, uint64_t bytes = kBytes) {
  const Stream stream(device);
  std::vector<unsigned char> read(bytes, static_cast<unsigned char>(byte + 1));
  Outcome outcome = device.call(&A::copy_async, read.data(), memory, bytes, stream);
  if (outcome.ok()) outcome = stream.synchronize();
  if (!outcome.ok()) return outcome.text();
  const auto wrong = std::find_if(read.begin(), read.end(), [&](int one) { return one != byte; });
  if (wrong == read.end()) return "";
  return "byte " + std::to_string(wrong - read.begin()) + " is " + std::to_string(*wrong) + ", not " +
         std::to_string(byte);
}

}  // namespace

TEST_CASE("one process reads and writes the exchange memory of another") {
  run_pair([](const Rank& self, const Wire& wire) -> std::string {
    const Ipc ipc(self.device);
    if (self.rank == 0) {
      const Exchanged memory(self.device);
      fill(self.device, memory.at(), 7);
      const pliant_ipc_handle handle = ipc.handle_to(memory.at());
      wire.pass(0, handle);
      close_descriptor(handle);
      self.board.flags[0].wait();
      return holds(self.device, memory.at(), 9);
    }
    const pliant_ipc_handle handle = wire.take(1);
    void* memory = nullptr;
    const Outcome imported = ipc.import(handle, memory);
    close_descriptor(handle);
    if (!imported.ok()) return imported.text();
    std::string fault = holds(self.device, memory, 7);
    fill(self.device, memory, 9);
    ipc.release(memory);
    self.board.flags[0].raise();
    return fault;
  });
}

TEST_CASE("memory that is imported twice is mapped once, until it was released twice") {
  run_pair([](const Rank& self, const Wire& wire) -> std::string {
    const Ipc ipc(self.device);
    if (self.rank == 0) {
      const Exchanged memory(self.device);
      fill(self.device, memory.at(), 7);
      const pliant_ipc_handle handle = ipc.handle_to(memory.at());
      wire.pass(0, handle);
      close_descriptor(handle);
      self.board.flags[0].wait();
      return "";
    }
    fill(self.device, Exchanged(self.device, 64).at(), 1, 64);  // what the first use opens stays open
    const pliant_ipc_handle handle = wire.take(1);
    const int64_t descriptors = open_descriptors();
    const int64_t mappings = shared_mappings();
    void* first = nullptr;
    void* second = nullptr;
    if (!ipc.import(handle, first).ok() || !ipc.import(handle, second).ok()) return "an import was refused";
    std::string fault = first == second ? "" : "two addresses for one allocation";
    ipc.release(first);
    if (fault.empty()) fault = holds(self.device, second, 7);
    ipc.release(second);
    if (fault.empty() && open_descriptors() != descriptors) fault = "descriptors were left open";
    if (fault.empty() && shared_mappings() != mappings) fault = "mappings were left behind";
    close_descriptor(handle);
    self.board.flags[0].raise();
    return fault;
  });
}

TEST_CASE("a handle is refused once its memory is freed, and new memory at that address has another") {
  run_pair([](const Rank& self, const Wire& wire) -> std::string {
    const Ipc ipc(self.device);
    if (self.rank == 0) {
      pliant_ipc_handle old{};
      {
        const Exchanged memory(self.device);
        fill(self.device, memory.at(), 7);
        old = ipc.handle_to(memory.at());
      }
      const Exchanged memory(self.device);
      fill(self.device, memory.at(), 8);
      const pliant_ipc_handle handle = ipc.handle_to(memory.at());
      if (std::memcmp(old.bytes, handle.bytes, sizeof(old.bytes)) == 0) return "two allocations have one handle";
      for (const pliant_ipc_handle& one : {old, handle}) {
        wire.pass(0, one);
        close_descriptor(one);
      }
      self.board.flags[0].wait();
      return "";
    }
    const pliant_ipc_handle old = wire.take(1);
    const pliant_ipc_handle handle = wire.take(1);
    void* memory = nullptr;
    const Outcome refused = ipc.import(old, memory);
    if (refused.status != PLIANT_FAILED_PRECONDITION) return "the old handle: " + refused.text();
    if (memory != nullptr) return "a refused import gave an address";
    const Outcome imported = ipc.import(handle, memory);
    std::string fault = imported.ok() ? holds(self.device, memory, 8) : imported.text();
    ipc.release(memory);
    close_descriptor(old);
    close_descriptor(handle);
    self.board.flags[0].raise();
    return fault;
  });
}

TEST_CASE("what cannot be exported or imported is refused with the reason") {
  const Device device;
  const Ipc ipc(device);
  const Exchanged memory(device);
  pliant_ipc_handle handle{};
  void* pinned = nullptr;
  REQUIRE(device.call(&A::alloc, 0, PLIANT_MEMORY_PINNED, kBytes, &pinned).ok());
  CHECK(ipc.call(&pliant_ipc::export_memory, 0, pinned, &handle).status == PLIANT_INVALID_ARGUMENT);
  CHECK(ipc.call(&pliant_ipc::export_memory, 0, static_cast<void*>(static_cast<char*>(memory.at()) + 64), &handle)
            .status == PLIANT_INVALID_ARGUMENT);
  CHECK(ipc.call(&pliant_ipc::export_memory, 7, memory.at(), &handle).message.find("device 7") != std::string::npos);
  CHECK(handle.descriptor == -1);
  device.slots().free(device.self(), 0, PLIANT_MEMORY_PINNED, pinned);

  void* imported = nullptr;
  CHECK(ipc.import(handle, imported).message == "the handle is blank; give the one that the exporting process got");
  handle = ipc.handle_to(memory.at());
  const Outcome own = ipc.import(handle, imported);
  CHECK(own.status == PLIANT_FAILED_PRECONDITION);
  CHECK(own.message == "the memory belongs to this process; use the pointer from alloc");
  pliant_ipc_handle damaged = handle;
  damaged.bytes[0] = static_cast<uint8_t>(damaged.bytes[0] + 1);
  CHECK(ipc.import(damaged, imported).status == PLIANT_INVALID_ARGUMENT);
  CHECK(imported == nullptr);
  close_descriptor(handle);
  ipc.release(nullptr);
}

TEST_CASE("a descriptor that is missing, or is another's, is refused") {
  run_pair([](const Rank& self, const Wire& wire) -> std::string {
    const Ipc ipc(self.device);
    if (self.rank == 0) {
      const Exchanged memory(self.device);
      const pliant_ipc_handle handle = ipc.handle_to(memory.at());
      wire.pass(0, handle);
      close_descriptor(handle);
      self.board.flags[0].wait();
      return "";
    }
    pliant_ipc_handle handle = wire.take(1);
    void* memory = nullptr;
    const int kept = handle.descriptor;
    handle.descriptor = -1;
    const Outcome missing = ipc.import(handle, memory);
    ::close(kept);
    self.board.flags[0].raise();
    if (kept < 0) return "";  // an accelerator whose handles have none
    return missing.message.find("pass it as SCM_RIGHTS") != std::string::npos ? "" : missing.text();
  });
}

TEST_CASE("events that pass between processes are refused where the accelerator has none") {
  const Device device;
  const Ipc ipc(device);
  pliant_event* event = nullptr;
  const Outcome made = device.call(&A::event_create, 0, PLIANT_EVENT_EXPORTED, &event);
  CHECK((ipc.table().export_event == nullptr) == (ipc.table().import_event == nullptr));
  if (ipc.table().export_event == nullptr) {
    CHECK(made.status == PLIANT_UNIMPLEMENTED);
    CHECK(made.message.find("PLIANT_EVENT_EXPORTED") != std::string::npos);
  } else {
    CHECK(made.ok());
    device.slots().event_destroy(device.self(), event);
  }
  CHECK(device.call(&A::event_create, 0, PLIANT_EVENT_EXPORTED | PLIANT_EVENT_TIMING, &event).status ==
        PLIANT_INVALID_ARGUMENT);
}
