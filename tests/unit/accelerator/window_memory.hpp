// Windows of communicators: memory of each rank, and collectives between them.
#pragma once

#include <algorithm>
#include <string>

#include "collective_cases.hpp"

namespace pliant_test {

constexpr uint64_t kPage = 4096;

/// Memory that may become a window.
class WindowMemory {
 public:
  WindowMemory(const Device& device, uint64_t bytes) : device_(device), bytes_(bytes) {
    const Outcome made = device.call(&pliant_accelerator::alloc, 0, PLIANT_MEMORY_WINDOW, bytes, &memory_);
    if (!made.ok()) throw std::runtime_error(made.text());
  }
  ~WindowMemory() { free(); }
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;

  void free() {
    if (memory_ != nullptr) device_.slots().free(device_.self(), 0, PLIANT_MEMORY_WINDOW, memory_);
    memory_ = nullptr;
  }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::byte* at(uint64_t offset = 0) const { return static_cast<std::byte*>(memory_) + offset; }
  void fill(int value) const { std::memset(memory_, value, bytes_); }
  [[nodiscard]] bool is_all(int value) const {
    return std::all_of(at(), at(bytes_), [&](std::byte one) { return one == static_cast<std::byte>(value); });
  }
  /// Makes all of it a window, and waits for that.
  [[nodiscard]] Outcome become_window(pliant_comm* comm, const Stream& stream) const {
    const Outcome enqueued = device_.call(&pliant_collectives::register_window, comm, memory_, bytes_, stream);
    return enqueued.ok() ? stream.synchronize() : enqueued;
  }

 private:
  const Device& device_;
  const uint64_t bytes_;
  void* memory_ = nullptr;
};

/// Where the buffers of a rank lie.
struct Placement {
  bool sends_from_window = true;
  bool receives_in_window = true;
  uint64_t shift = 0;  ///< elements from the beginning of the window
};

/// One collective whose buffers lie in the window; "" or what went wrong.
template <class T>
std::string run_in(const Rank& self, pliant_comm* comm, const Stream& stream, const WindowMemory& window, Kind kind,
                   uint64_t count, int32_t op = PLIANT_SUM, bool in_place = false, Placement placement = {}) {
  Case<T> one(kind, self.rank, self.world_size, count, op, in_place);
  T* const begin = reinterpret_cast<T*>(window.at()) + placement.shift;
  std::vector<T> plain(one.sent() + one.received());
  T* const recv = placement.receives_in_window ? begin : plain.data() + one.sent();
  // On every rank behind the longest result that there is, which differ in all_gather_v by what each rank sends only.
  T* const send = placement.sends_from_window ? begin + one.received() : plain.data();
  one.use(send, recv);
  Outcome outcome = one.start(self.device, comm, stream);
  if (outcome.ok()) outcome = stream.synchronize();
  if (!outcome.ok()) return outcome.text();
  return one.check();
}

}  // namespace pliant_test
