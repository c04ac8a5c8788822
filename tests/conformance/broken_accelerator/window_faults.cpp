// Faults of windows.
#include <atomic>
#include <cstddef>
#include <cstring>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// unaligned: memory for windows begins 64 bytes past a page; clears: register_window clears the memory; begin: what is
/// gathered to the middle of a window goes to its begin; once: memory becomes a window once.
struct WindowsWrong : Honest {
  [[nodiscard]] uint64_t past(Memory memory) const { return memory == Memory::kWindow && way == "unaligned" ? 64 : 0; }
  void* alloc(int32_t device, Memory memory, uint64_t bytes) override {
    const uint64_t more = past(memory);
    return static_cast<std::byte*>(Device::alloc(device, memory, bytes + (more == 0 ? 0 : kPage))) + more;
  }
  void free(int32_t device, Memory memory, void* pointer) override {
    if (pointer != nullptr) Device::free(device, memory, static_cast<std::byte*>(pointer) - past(memory));
  }
  void register_window(Comm& comm, void* pointer, uint64_t bytes, Stream& stream) override {
    sdk::require(way != "once" || known++ == 0, "this memory is a window already");
    window = static_cast<std::byte*>(pointer);
    comm.enqueue({.kind = accelerator::CallKind::kWindow, .elements = {bytes, DType::kU8}}, stream);
    if (way == "clears") stream.enqueue([=] { std::memset(pointer, 0, bytes); });
  }
  void all_gather(Comm& comm, const void* send, void* recv, Elements elements, Stream& stream) override {
    const auto offset = static_cast<std::byte*>(recv) - window.load();
    const bool moves = way == "begin" && window != nullptr && offset > 0 && offset < 600 * static_cast<int>(kPage);
    Device::all_gather(comm, send, moves ? window.load() : recv, elements, stream);
  }
  std::atomic<std::byte*> window{nullptr};
  std::atomic<int> known{0};
};

}  // namespace

std::vector<Fault> window_faults() {
  return {{"windows-wrong", {"unaligned", "clears", "begin", "once"}, make<WindowsWrong>}};
}

}  // namespace pliant::broken
