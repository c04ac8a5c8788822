// Records and awaits on the threads of streams.
#include "ipc_event.hpp"

#include <unistd.h>

#include <utility>

#include "common/cpu/event_handle.hpp"

namespace pliant::cuda {

using accelerator::SharedEvent;

IpcEvent::IpcEvent(DevicePtr device, accelerator::ProcessWatch& watch)
    : device_(std::move(device)), page_(SharedEvent::make(SharedEvent::kMostSlots, watch)) {}

IpcEvent::IpcEvent(DevicePtr device, const pliant_ipc_handle& handle, accelerator::ProcessWatch& watch)
    : device_(std::move(device)), page_(accelerator::import_event(handle, watch)) {}

IpcEvent::~IpcEvent() {
  if (page_->is_own() && ::getpid() == device_->owner) page_->retire();
}

pliant_ipc_handle IpcEvent::handle() const {
  require_process(device_->owner);
  return accelerator::export_event(page_.get());
}

IpcEvent::Latest IpcEvent::latest() const {
  require_process(device_->owner);
  const std::lock_guard lock(mutex_);
  const SharedEvent::Recording last = page_->latest();
  return last.number == own_.recording.number ? own_ : Latest{last, nullptr, 0};
}

void IpcEvent::record(Stream& stream) {
  const std::lock_guard lock(mutex_);
  Stream::Turn turn(stream);
  const SharedEvent::Recording recording = page_->record();
  const uint64_t number = turn.number() + 1;
  const auto tell = [page = page_, recording](bool failed) {
    page->set(recording, failed ? SharedEvent::State::kFailed : SharedEvent::State::kReached);
  };
  try {
    turn.on_host(
        [tell, failures = stream.failures(), number](bool broken) { tell(broken || failures->holds(number)); });
  } catch (...) {
    tell(true);
    throw;
  }
  own_ = {recording, stream.failures(), number};
}

bool IpcEvent::query() const {
  const Latest last = latest();
  if (last.recording.number == 0) return true;
  page_->watch_recorder(last.recording);
  return SharedEvent::is_over(page_->state(last.recording));
}

void IpcEvent::synchronize() const {
  const Latest last = latest();
  if (last.recording.number == 0) return;
  const SharedEvent::State state = page_->wait(last.recording, true);
  if (last.failures) return last.failures->tell(last.work);
  SharedEvent::require_reached(last.recording, state);
}

void IpcEvent::make_wait(Stream& stream) const {
  const Latest last = latest();
  if (last.recording.number == 0) return;
  const bool is_own = last.failures != nullptr;  // then a failure is told by the stream that has it
  Stream::Turn(stream).on_thread([page = page_, recording = last.recording, is_own](const Api&, cudaStream_t) {
    const SharedEvent::State state = page->wait(recording, true);
    if (!is_own) SharedEvent::require_reached(recording, state);
  });
}

}  // namespace pliant::cuda
