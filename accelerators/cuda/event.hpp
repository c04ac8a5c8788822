// Mark: one recording of an event. EventPool: events of CUDA, used again when nobody needs them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "pliant/sdk/failure.hpp"
#include "runtime.hpp"

namespace pliant::cuda {

/// Of one device. All calls may come from any thread.
class EventPool {
 public:
  explicit EventPool(DevicePtr device) : device_(std::move(device)) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  [[nodiscard]] cudaEvent_t take(bool timed);
  void give_back(cudaEvent_t event, bool timed) noexcept;
  [[nodiscard]] const DeviceEntry& device() const { return *device_; }

 private:
  struct Kind {
    std::vector<cudaEvent_t> free;
    size_t made = 0;
  };
  const DevicePtr device_;
  std::mutex mutex_;
  Kind plain_;
  Kind timed_;
};

/// A point behind some work of a stream. It becomes known to CUDA (submitted) when all host work before it has run.
/// Whoever needs it owns a share.
class Mark {
 public:
  Mark(std::shared_ptr<EventPool> pool, bool timed) : pool_(std::move(pool)), timed_(timed) {}
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  /// Called once, by the stream: records it there, or throws and the mark has failed.
  void submit(cudaStream_t stream);

  /// cudaSuccess, cudaErrorNotReady or why it will never be reached.
  [[nodiscard]] cudaError_t query();
  /// The same, after waiting; never cudaErrorNotReady.
  [[nodiscard]] cudaError_t wait();
  [[nodiscard]] bool is_submitted() const { return state_ != State::kPending; }
  void wait_submitted() const { state_.wait(State::kPending); }
  [[nodiscard]] bool is_timed() const { return timed_; }
  /// NULL unless it was submitted.
  [[nodiscard]] cudaEvent_t event() const { return state_ == State::kPending ? nullptr : event_; }
  [[nodiscard]] const DeviceEntry& device() const { return pool_->device(); }

 private:
  enum class State { kPending, kSubmitted, kReached, kFailed };
  void become(State state);

  const std::shared_ptr<EventPool> pool_;
  const bool timed_;
  std::atomic<State> state_{State::kPending};
  cudaEvent_t event_ = nullptr;  // both are written before state_ moves on
  cudaError_t failure_ = cudaSuccess;
};

}  // namespace pliant::cuda
