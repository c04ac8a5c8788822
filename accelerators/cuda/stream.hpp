// Stream: device and host work in one order. Event: a point in a stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "common/devices/failure_slot.hpp"
#include "common/devices/host_thread.hpp"
#include "event.hpp"
#include "memory.hpp"

namespace pliant::cuda {

/// Work goes straight to CUDA's stream while there is no host work before it. Host work runs on a thread of the
/// stream's own, since CUDA's host functions may hold up those of other streams; whatever comes behind it is given to
/// CUDA by that thread. All calls may come from any thread.
class Stream {
 public:
  using DeviceWork = std::function<void(const Api& api, cudaStream_t stream)>;
  /// `broken`: work before it failed on the device.
  using HostWork = std::function<void(bool broken)>;

  Stream(DevicePtr device, std::shared_ptr<EventPool> events, int priority, uint64_t staging_bytes);
  /// Waits for enqueued work.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Several pieces of work that nobody else's come between. Holds the stream's lock while it lives.
  class Turn {
   public:
    explicit Turn(Stream& stream);
    /// Given to CUDA in stream order, with the stream's device as the current one: now, or later from the stream's
    /// thread, where it may wait. It owns what it needs.
    void on_device(DeviceWork work) { stream_.put(std::move(work)); }
    /// As on_device, always from the stream's thread.
    void on_thread(DeviceWork work);
    /// Runs on the stream's thread when all work before it has run.
    void on_host(HostWork work);
    /// Pinned memory of the stream, of staging_bytes, for work of this turn alone.
    [[nodiscard]] std::byte* staging();
    /// on_device would run at once.
    [[nodiscard]] bool is_direct() const { return stream_.host_->idle(); }
    /// The number of the last work.
    [[nodiscard]] uint64_t number() const { return stream_.enqueued_; }

   private:
    Stream& stream_;
    const std::lock_guard<std::mutex> lock_;
  };

  /// Waits for what was enqueued before the call; throws the first untold failure.
  void synchronize();
  [[nodiscard]] bool query();
  struct Recorded {
    std::shared_ptr<Mark> mark;
    uint64_t number = 0;  ///< of the last work before it
  };
  [[nodiscard]] Recorded record(bool timed);
  void wait_for(const std::shared_ptr<Mark>& mark);

  [[nodiscard]] const DeviceEntry& device() const { return *device_; }
  [[nodiscard]] uint64_t staging_bytes() const { return staging_bytes_; }
  [[nodiscard]] const std::shared_ptr<devices::FailureSlot>& failures() const { return failures_; }
  [[nodiscard]] const std::shared_ptr<EventPool>& events() const { return events_; }
  /// CUDA's own handle: for what has no place in stream order.
  [[nodiscard]] cudaStream_t handle() const { return stream_; }

 private:
  void put(DeviceWork work);
  void run(const DeviceWork& work) const;
  Recorded record_locked(bool timed);

  const DevicePtr device_;
  const std::shared_ptr<EventPool> events_;
  const uint64_t staging_bytes_;
  const std::shared_ptr<devices::FailureSlot> failures_ = std::make_shared<devices::FailureSlot>();
  std::mutex mutex_;  ///< of the order of work
  uint64_t enqueued_ = 0;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<PinnedBlock> staging_;
  std::unique_ptr<devices::HostThread> host_ = std::make_unique<devices::HostThread>(failures_);
};

class IpcEvent;

class Event {
 public:
  Event(bool timed, DevicePtr device) : timed_(timed), device_(std::move(device)) {}
  /// One that passes between processes.
  Event(std::shared_ptr<IpcEvent> shared, DevicePtr device)
      : timed_(false), device_(std::move(device)), shared_(std::move(shared)) {}
  /// Seconds between two recordings. Throws PLIANT_FAILED_PRECONDITION unless both were reached and are timed.
  static double elapsed(Event& begin, Event& end);
  void record(Stream& stream);
  /// True when it was never recorded.
  [[nodiscard]] bool query();
  void synchronize();
  void make_wait(Stream& stream);
  /// NULL unless it passes between processes.
  [[nodiscard]] const std::shared_ptr<IpcEvent>& shared() const { return shared_; }

 private:
  struct Recording {
    Stream::Recorded at;
    std::shared_ptr<devices::FailureSlot> failures;
  };
  [[nodiscard]] Recording latest();
  [[nodiscard]] std::shared_ptr<Mark> reached_mark(const char* which);

  const bool timed_;
  const DevicePtr device_;
  const std::shared_ptr<IpcEvent> shared_;
  std::mutex mutex_;
  Recording recording_;
};

}  // namespace pliant::cuda
