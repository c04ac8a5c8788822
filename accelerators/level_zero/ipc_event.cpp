// Pools of events in several processes.
#include "ipc_event.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "common/cpu/event_handle.hpp"
#include "result.hpp"

namespace pliant::level_zero {

using accelerator::EventLabel;
using accelerator::SharedEvent;
using sdk::Failure;
using State = SharedEvent::State;

namespace {
constexpr uint64_t kMagic = 0x3156455a544e4c50;  // "PLNTZEV1"

/// Where a handle of Level Zero carries a descriptor it is at its begin. Those of the standard streams it never is.
int descriptor_in(const ze_ipc_event_pool_handle_t& handle) {
  int32_t fd = -1;
  std::memcpy(&fd, handle.data, sizeof(fd));
  return fd > 2 && ::fcntl(fd, F_GETFD) >= 0 ? fd : -1;
}
}  // namespace

struct IpcEvent::Label {
  EventLabel event;
  ze_ipc_event_pool_handle_t pool;
  uint64_t device_list;
  uint64_t has_descriptor;
};

IpcEvent::IpcEvent(const DeviceEntry& entry, std::shared_ptr<Page> page, accelerator::ProcessWatch& watch)
    : context_(entry.context), device_list_(entry.device_list), page_(std::move(page)), watch_(watch) {}

std::shared_ptr<IpcEvent> IpcEvent::make(const DeviceEntry& entry, accelerator::ProcessWatch& watch) {
  std::shared_ptr<IpcEvent> made(new IpcEvent(entry, SharedEvent::make(kEvents, watch), watch));
  ze_event_pool_desc_t wanted{};
  wanted.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC;
  wanted.flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_IPC;
  wanted.count = kEvents;
  const Context& context = *entry.context;
  check(context.api.zeEventPoolCreate(context.handle, &wanted, 0, nullptr, &made->pool_), "zeEventPoolCreate");
  return made;
}

std::shared_ptr<IpcEvent> IpcEvent::open(const DeviceEntry& entry, const pliant_ipc_handle& handle,
                                         accelerator::ProcessWatch& watch) {
  Label label{};
  static_assert(sizeof(label) <= sizeof(handle.bytes));
  std::memcpy(&label, handle.bytes, sizeof(label));
  label.event.require_foreign(kMagic);
  sdk::require(handle.descriptor >= 0, "the handle came without its descriptor; pass it as SCM_RIGHTS");
  const std::vector<accelerator::UniqueFd> inside = read_letter(handle.descriptor);
  sdk::require(inside.size() == (label.has_descriptor != 0 ? 2U : 1U),
               "descriptor " + std::to_string(handle.descriptor) + " is not that of the handle");
  auto page = label.event.open(inside[0].get(), watch);
  if (label.device_list != entry.device_list) {
    throw Failure(PLIANT_FAILED_PRECONDITION,
                  "the process that created the event sees other devices than this one, and Level Zero shares events "
                  "only between processes with the same devices; set the same ZE_AFFINITY_MASK for both");
  }
  std::shared_ptr<IpcEvent> made(new IpcEvent(entry, std::move(page), watch));
  if (label.has_descriptor != 0) {
    // It has another number here than where the handle was made.
    const int pool = inside[1].get();
    std::memcpy(label.pool.data, &pool, sizeof(pool));
  }
  const Context& context = *entry.context;
  check(context.api.zeEventPoolOpenIpcHandle(context.handle, label.pool, &made->pool_), "zeEventPoolOpenIpcHandle");
  return made;
}

IpcEvent::~IpcEvent() {
  if (pool_ == nullptr || ::getpid() != context_->owner) return;
  const Api& api = context_->api;
  for (ze_event_handle_t event : events_) {
    if (event != nullptr) api.zeEventDestroy(event);
  }
  if (page_->is_own()) {
    api.zeEventPoolDestroy(pool_);
  } else {
    api.zeEventPoolCloseIpcHandle(pool_);
  }
}

pliant_ipc_handle IpcEvent::handle() {
  accelerator::require_exported(page_.get());
  const std::lock_guard lock(mutex_);
  if (!letter_) {
    check(context_->api.zeEventPoolGetIpcHandle(pool_, &pool_handle_), "zeEventPoolGetIpcHandle");
    const int pool = descriptor_in(pool_handle_);
    letter_ =
        write_letter(pool < 0 ? std::vector<int>{page_->descriptor()} : std::vector<int>{page_->descriptor(), pool});
  }
  const Label label{EventLabel::of(*page_, kMagic), pool_handle_, device_list_,
                    descriptor_in(pool_handle_) < 0 ? uint64_t{0} : uint64_t{1}};
  pliant_ipc_handle made{};
  std::memcpy(made.bytes, &label, sizeof(label));
  made.descriptor = accelerator::duplicate_for_handle(letter_.get());
  return made;
}

ze_event_handle_t IpcEvent::event(const Recording& recording) {
  const std::lock_guard lock(mutex_);
  ze_event_handle_t& found = events_[recording.slot];
  if (found != nullptr) return found;
  ze_event_desc_t one{};
  one.stype = ZE_STRUCTURE_TYPE_EVENT_DESC;
  one.index = recording.slot;
  one.signal = ZE_EVENT_SCOPE_FLAG_HOST;
  one.wait = ZE_EVENT_SCOPE_FLAG_HOST;
  check(context_->api.zeEventCreate(pool_, &one, &found), "zeEventCreate");
  return found;
}

OwnRecording::OwnRecording(std::shared_ptr<IpcEvent> event, std::shared_ptr<devices::FailureSlot> failures,
                           uint64_t number)
    : event_(std::move(event)), failures_(std::move(failures)), number_(number), recording_(event_->page().record()) {
  event_->page().hold(recording_);  // until no list here can wait for its event any more
}

OwnRecording::~OwnRecording() {
  if (::getpid() != event_->context()->owner) return;
  over(false);
  event_->page().release(recording_);
}

ze_event_handle_t OwnRecording::take() {
  ze_event_handle_t found = event_->event(recording_);
  check(event_->context()->api.zeEventHostReset(found), "zeEventHostReset");
  const std::lock_guard lock(mutex_);
  taken_ = found;
  return found;
}

void OwnRecording::submitted() {
  const std::lock_guard lock(mutex_);
  told_ = failures_->holds(number_);
  event_->page().set(recording_, told_ ? State::kFailed : State::kReady);
}

void OwnRecording::over(bool reached) noexcept {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(told_, true)) {
    event_->page().set(recording_, reached && !failures_->holds(number_) ? State::kReached : State::kFailed);
  }
  const Api& api = event_->context()->api;
  // Lists of other processes that wait for it would wait for ever.
  if (!reached && taken_ != nullptr) api.zeEventHostSignal(taken_);
  taken_ = nullptr;
}

PeerRecording::PeerRecording(std::shared_ptr<IpcEvent> event, const IpcEvent::Recording& recording)
    : event_(std::move(event)), recording_(recording) {
  event_->page().hold(recording_);
}

PeerRecording::~PeerRecording() {
  if (::getpid() != event_->context()->owner) return;
  event_->page().release(recording_);
}

void PeerRecording::watch() {
  if (SharedEvent::is_over(event_->page().state(recording_))) return;
  event_->watch().watch(accelerator::ProcessId::unpack(recording_.recorder), weak_from_this());
}

ze_result_t PeerRecording::query() {
  const State now = event_->page().state(recording_);
  if (SharedEvent::is_over(now)) return ZE_RESULT_SUCCESS;
  if (now != State::kReady) return ZE_RESULT_NOT_READY;
  return event_->context()->api.zeEventQueryStatus(event_->event(recording_));
}

ze_result_t PeerRecording::wait() {
  if (SharedEvent::is_over(event_->page().wait(recording_, false))) return ZE_RESULT_SUCCESS;
  ze_result_t result = ZE_RESULT_NOT_READY;
  while (result == ZE_RESULT_NOT_READY) {
    result =
        event_->context()->api.zeEventHostSynchronize(event_->event(recording_), std::numeric_limits<uint64_t>::max());
  }
  return result;
}

bool PeerRecording::is_submitted() const {
  return event_->page().state(recording_) >= State::kReady;
}

void PeerRecording::wait_submitted() {
  static_cast<void>(event_->page().wait(recording_, false));
}

ze_event_handle_t PeerRecording::event() {
  return event_->event(recording_);
}

void PeerRecording::require_reached() const {
  SharedEvent::require_reached(recording_, event_->page().state(recording_));
}

bool PeerRecording::is_reached() {
  const State now = event_->page().state(recording_);
  return now == State::kReached ||
         (now == State::kReady && query() == ZE_RESULT_SUCCESS && event_->page().state(recording_) <= State::kReached);
}

void PeerRecording::ended(const accelerator::ProcessId& process) {
  if (::getpid() != event_->context()->owner) return;
  SharedEvent& page = event_->page();
  page.ended(process);
  if (page.state(recording_) != State::kReady) return;
  const Api& api = event_->context()->api;
  ze_event_handle_t const one = event_->event(recording_);
  const bool reached = api.zeEventQueryStatus(one) == ZE_RESULT_SUCCESS;
  page.settle(recording_, reached ? State::kReached : State::kDied);
  if (!reached) api.zeEventHostSignal(one);  // lists of this process wait for it
}

}  // namespace pliant::level_zero
