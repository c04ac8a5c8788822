// Faults that one thread does not see.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// busy: a thread that allocates while another does is refused; scratch: casts of all streams go through one buffer.
struct ThreadsWrong : Honest {
  void* alloc(int32_t device, Memory memory, uint64_t bytes) override {
    if (way != "busy") return Device::alloc(device, memory, bytes);
    const std::unique_lock lock(allocating, std::try_to_lock);
    if (!lock.owns_lock()) throw Failure(PLIANT_FAILED_PRECONDITION, "another thread allocates");
    std::this_thread::sleep_for(std::chrono::microseconds(200));  // the fault itself
    return Device::alloc(device, memory, bytes);
  }
  void cast(void* to, DType to_type, const void* from, Elements elements, Stream& stream) override {
    const uint64_t bytes = elements.count * size_of(to_type);
    if (way != "scratch" || bytes > scratch.size()) return Device::cast(to, to_type, from, elements, stream);
    Device::cast(scratch.data(), to_type, from, elements, stream);
    stream.enqueue([=, this] {
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // the fault itself
      std::copy_n(scratch.begin(), bytes, static_cast<char*>(to));
    });
  }
  std::mutex allocating;
  std::vector<char> scratch = std::vector<char>(8192);
};

}  // namespace

std::vector<Fault> thread_faults() {
  return {{"threads-wrong", {"busy", "scratch"}, make<ThreadsWrong>}};
}

}  // namespace pliant::broken
