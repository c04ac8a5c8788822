// BROKEN: windows are wrong in one way, the option `fault`.
#include <atomic>
#include <string>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)
using pliant::accelerator::CallKind;
using pliant::sdk::Elements;
using pliant::sdk::Memory;

constexpr uint64_t kPage = 4096;

struct WindowsWrong : Honest<WindowsWrong> {
  std::string fault = "unaligned";
  std::atomic<std::byte*> window{nullptr};
  std::atomic<int> known{0};

  static void options(pliant::sdk::Options<WindowsWrong>& table) {
    table
        .add("fault", &WindowsWrong::fault,
             "unaligned: memory for windows begins 64 bytes past a page; clears: register_window clears the memory; "
             "begin: what is gathered to the middle of a window goes to its begin; once: memory becomes a window once.")
        .choices({"unaligned", "clears", "begin", "once"});
  }
  [[nodiscard]] uint64_t past(Memory memory) const {
    return memory == Memory::kWindow && fault == "unaligned" ? 64 : 0;
  }
  void* alloc(int32_t device, Memory memory, uint64_t bytes) {
    const uint64_t more = past(memory);
    return static_cast<std::byte*>(Device::alloc(device, memory, bytes + (more == 0 ? 0 : kPage))) + more;
  }
  void free(int32_t device, Memory memory, void* pointer) {
    if (pointer != nullptr) Device::free(device, memory, static_cast<std::byte*>(pointer) - past(memory));
  }
  void register_window(Comm& comm, void* pointer, uint64_t bytes, Stream& stream) {
    pliant::sdk::require(fault != "once" || known++ == 0, "this memory is a window already");
    window = static_cast<std::byte*>(pointer);
    comm.enqueue({.kind = CallKind::kWindow, .elements = {bytes, pliant::sdk::DType::kU8}}, stream);
    if (fault == "clears") stream.enqueue([=] { std::memset(pointer, 0, bytes); });
  }
  void all_gather(Comm& comm, const void* send, void* recv, Elements elements, Stream& stream) {
    const auto offset = static_cast<std::byte*>(recv) - window.load();
    const bool moves = fault == "begin" && window != nullptr && offset > 0 && offset < 600 * static_cast<int>(kPage);
    Device::all_gather(comm, send, moves ? window.load() : recv, elements, stream);
  }
};

}  // namespace

PLIANT_BROKEN(WindowsWrong, "windows-wrong")
