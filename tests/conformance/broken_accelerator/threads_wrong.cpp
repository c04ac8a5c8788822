// BROKEN: one thread at a time, or else: the option `fault`.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct ThreadsWrong : Honest<ThreadsWrong> {
  std::string fault = "busy";
  std::mutex allocating;
  std::vector<char> scratch = std::vector<char>(8192);

  static void options(pliant::sdk::Options<ThreadsWrong>& table) {
    table
        .add("fault", &ThreadsWrong::fault,
             "busy: a thread that allocates while another does is refused; scratch: casts of all streams go through "
             "one buffer.")
        .choices({"busy", "scratch"});
  }
  void* alloc(int32_t device, pliant::sdk::Memory memory, uint64_t bytes) {
    if (fault != "busy") return Device::alloc(device, memory, bytes);
    const std::unique_lock lock(allocating, std::try_to_lock);
    if (!lock.owns_lock()) throw pliant::sdk::Failure(PLIANT_FAILED_PRECONDITION, "another thread allocates");
    std::this_thread::sleep_for(std::chrono::microseconds(200));  // the fault itself
    return Device::alloc(device, memory, bytes);
  }
  void cast(void* to, pliant::sdk::DType to_type, const void* from, pliant::sdk::Elements elements, Stream& stream) {
    const uint64_t bytes = elements.count * size_of(to_type);
    if (fault != "scratch" || bytes > scratch.size()) return Device::cast(to, to_type, from, elements, stream);
    Device::cast(scratch.data(), to_type, from, elements, stream);
    stream.enqueue([=, this] {
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // the fault itself
      std::copy_n(scratch.begin(), bytes, static_cast<char*>(to));
    });
  }
};

}  // namespace

PLIANT_BROKEN(ThreadsWrong, "threads-wrong")
