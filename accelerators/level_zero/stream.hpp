// Stream: device and host work in one order. Event: a point in a stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "command_list.hpp"
#include "common/devices/failure_slot.hpp"
#include "common/devices/host_thread.hpp"
#include "ipc_event.hpp"
#include "memory.hpp"

namespace pliant::level_zero {

/// Work goes straight onto the command list while there is no host work before it. Host work runs on a thread, once the
/// list is drained; whatever comes behind it is put on the list by that thread. All calls may come from any thread.
class Stream {
 public:
  /// `broken`: work before it failed on the device.
  using HostWork = std::function<void(bool broken)>;

  Stream(const DeviceEntry& device, std::shared_ptr<EventPool> events, QueueChoice queue, uint64_t staging_bytes);
  /// Waits for enqueued work.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Several pieces of work that nobody else's come between. Holds the stream's lock while it lives.
  class Turn {
   public:
    explicit Turn(Stream& stream);
    /// What `append` puts on the list runs after all work before it; its own commands in any order. `append` owns what
    /// it needs: it may be called later, or not at all on a broken device.
    void on_device(CommandList::Append append);
    void on_host(HostWork work);
    /// Pinned memory of the stream, of staging_bytes, for work of this turn alone.
    [[nodiscard]] std::byte* staging();

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
    uint64_t shared = 0;  ///< number of the recording, where other processes know of it
  };
  /// `shared` may be NULL.
  [[nodiscard]] Recorded record(bool timed, const std::shared_ptr<IpcEvent>& shared);
  void wait_for(const std::shared_ptr<Signal>& mark);
  /// The next synchronize tells when that was not reached.
  void wait_for_peer(const std::shared_ptr<PeerRecording>& recording);

  [[nodiscard]] const DeviceEntry& device() const { return device_; }
  [[nodiscard]] uint64_t staging_bytes() const { return staging_bytes_; }
  /// Whether its queue takes kernels.
  [[nodiscard]] bool computes() const { return computes_; }
  [[nodiscard]] const std::shared_ptr<devices::FailureSlot>& failures() const { return failures_; }

 private:
  void require_owner() const;
  void put(std::function<void(CommandList& list)> work);
  Recorded record_locked(bool timed, const std::shared_ptr<IpcEvent>& shared = nullptr);
  void wait_locked(const std::shared_ptr<Signal>& mark);
  /// Notes what recordings of other processes that work up to `last` waited for have failed.
  void judge_peers(uint64_t last);

  struct PeerWait {
    uint64_t number;  ///< of the waiting work
    std::shared_ptr<PeerRecording> recording;
  };
  const DeviceEntry& device_;
  const std::shared_ptr<EventPool> events_;
  const uint64_t staging_bytes_;
  const bool computes_;
  const std::shared_ptr<devices::FailureSlot> failures_ = std::make_shared<devices::FailureSlot>();
  std::mutex mutex_;  ///< of the order of work; whoever holds it while the host thread is idle has the list
  uint64_t enqueued_ = 0;
  std::vector<PeerWait> peer_waits_;  ///< that may still be told of
  std::unique_ptr<CommandList> list_;
  std::unique_ptr<PinnedBlock> staging_;
  std::unique_ptr<devices::HostThread> host_ = std::make_unique<devices::HostThread>(failures_);
};

class Event {
 public:
  /// `shared`: what other processes know of it; NULL where none does.
  Event(bool timed, std::shared_ptr<Context> context, std::shared_ptr<IpcEvent> shared = nullptr)
      : timed_(timed), context_(std::move(context)), shared_(std::move(shared)) {}
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  /// Seconds between two recordings. Throws PLIANT_FAILED_PRECONDITION unless both were reached and are timed.
  static double elapsed(Event& begin, Event& end);
  void record(Stream& stream);
  /// True when it was never recorded.
  [[nodiscard]] bool query();
  void synchronize();
  void make_wait(Stream& stream);
  /// NULL unless it was made to be exported, or imported.
  [[nodiscard]] const std::shared_ptr<IpcEvent>& shared() const { return shared_; }

 private:
  struct Recording {
    Stream::Recorded at;
    std::shared_ptr<devices::FailureSlot> failures;
  };
  [[nodiscard]] Recording latest();
  /// The latest recording when another process made it; else NULL.
  [[nodiscard]] std::shared_ptr<PeerRecording> latest_of_peer();
  [[nodiscard]] std::shared_ptr<Mark> timed_mark(const char* which);

  const bool timed_;
  const std::shared_ptr<Context> context_;
  const std::shared_ptr<IpcEvent> shared_;
  std::mutex mutex_;
  Recording recording_;
};

}  // namespace pliant::level_zero
