// IpcEvent: an event that several processes record and wait for: a pool of Level Zero's events that they have in
// common, one for each recording that is not over, and a page that says which they are.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/cpu/shared_event.hpp"
#include "common/devices/failure_slot.hpp"
#include "event.hpp"
#include "letter.hpp"
#include "pliant/abi/ipc.h"
#include "runtime.hpp"

namespace pliant::level_zero {

/// All calls may come from any thread.
class IpcEvent {
 public:
  /// Recordings that may be outstanding.
  static constexpr uint32_t kEvents = 256;
  using Page = accelerator::SharedEvent;
  using Recording = Page::Recording;

  static std::shared_ptr<IpcEvent> make(const DeviceEntry& entry, accelerator::ProcessWatch& watch);
  /// Throws PLIANT_INVALID_ARGUMENT for what is no handle, PLIANT_FAILED_PRECONDITION when the event is gone or of this
  /// process, or when that process sees other devices.
  static std::shared_ptr<IpcEvent> open(const DeviceEntry& entry, const pliant_ipc_handle& handle,
                                        accelerator::ProcessWatch& watch);
  ~IpcEvent();
  IpcEvent(const IpcEvent&) = delete;
  IpcEvent& operator=(const IpcEvent&) = delete;

  /// The descriptor is a new one, the caller's. PLIANT_INVALID_ARGUMENT for one that another process made.
  [[nodiscard]] pliant_ipc_handle handle();
  /// Refused to others from now on.
  void retire() { page_->retire(); }

  [[nodiscard]] Page& page() const { return *page_; }
  [[nodiscard]] accelerator::ProcessWatch& watch() const { return watch_; }
  [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }
  /// That of a recording.
  [[nodiscard]] ze_event_handle_t event(const Recording& recording);

 private:
  struct Label;  // what a handle's bytes are
  IpcEvent(const DeviceEntry& entry, std::shared_ptr<Page> page, accelerator::ProcessWatch& watch);

  const std::shared_ptr<Context> context_;
  const uint64_t device_list_;
  const std::shared_ptr<Page> page_;
  accelerator::ProcessWatch& watch_;
  std::mutex mutex_;
  ze_event_pool_handle_t pool_ = nullptr;
  std::vector<ze_event_handle_t> events_ = std::vector<ze_event_handle_t>(kEvents);  ///< made when first used
  accelerator::UniqueFd letter_;                                                     ///< with the first handle
  ze_ipc_event_pool_handle_t pool_handle_{};
};

/// A recording by this process, to the others.
class OwnRecording final : public SharedPoint {
 public:
  /// Throws PLIANT_RESOURCE_EXHAUSTED. `number` is that of the last work before it.
  OwnRecording(std::shared_ptr<IpcEvent> event, std::shared_ptr<devices::FailureSlot> failures, uint64_t number);
  ~OwnRecording() override;
  [[nodiscard]] const IpcEvent::Recording& recording() const { return recording_; }

  [[nodiscard]] ze_event_handle_t take() override;
  void submitted() override;
  void over(bool reached) noexcept override;

 private:
  const std::shared_ptr<IpcEvent> event_;
  const std::shared_ptr<devices::FailureSlot> failures_;
  const uint64_t number_;
  const IpcEvent::Recording recording_;
  std::mutex mutex_;
  ze_event_handle_t taken_ = nullptr;
  bool told_ = false;
};

/// A recording by another process, to this one.
class PeerRecording final : public Signal,
                            public accelerator::ProcessWatch::Concerned,
                            public std::enable_shared_from_this<PeerRecording> {
 public:
  PeerRecording(std::shared_ptr<IpcEvent> event, const IpcEvent::Recording& recording);
  ~PeerRecording() override;
  /// To be called before it is waited for: waiting ends with the recording process. Throws
  /// PLIANT_RESOURCE_EXHAUSTED when that cannot be watched.
  void watch();

  [[nodiscard]] ze_result_t query() override;
  [[nodiscard]] ze_result_t wait() override;
  [[nodiscard]] bool is_submitted() const override;
  void wait_submitted() override;
  [[nodiscard]] ze_event_handle_t event() override;
  [[nodiscard]] const Context* context() const override { return event_->context().get(); }
  /// Throws PLIANT_ABORTED when it is over and was not reached.
  void require_reached() const;
  /// Here it is true that it was.
  [[nodiscard]] bool is_reached();

  void ended(const accelerator::ProcessId& process) override;

 private:
  const std::shared_ptr<IpcEvent> event_;
  const IpcEvent::Recording recording_;
};

}  // namespace pliant::level_zero
