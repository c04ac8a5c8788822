// Records and awaits events between processes.
#include "shared_event.hpp"

#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

#include "result.hpp"

namespace pliant::cuda {

using sdk::Failure;

namespace {
constexpr uint64_t kMagic = 0x31564541444c5050;  // "PPLDAEV1"
}  // namespace

SharedEvent::SharedEvent(DevicePtr device) : device_(std::move(device)), is_own_(true) {
  const Api& api = device_->api;
  const OnDevice here(api, device_->index);
  check(api, api.cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventInterprocess),
        "cudaEventCreateWithFlags");
}

SharedEvent::SharedEvent(DevicePtr device, const pliant_ipc_handle& handle)
    : SharedEvent(std::move(device), handle, HandleLabel::unpack(handle, kMagic, "event")) {}

SharedEvent::SharedEvent(DevicePtr device, const pliant_ipc_handle& handle, const HandleLabel& label)
    : device_(std::move(device)), page_(handle.descriptor, label.own_nonce()), is_own_(false) {
  if (!is_running(static_cast<pid_t>(label.pid))) page_.words().is_gone = 1;
  require_there();
  cudaIpcEventHandle_t native;
  static_assert(sizeof(native) == sizeof(label.native));
  std::memcpy(&native, label.native, sizeof(native));
  const Api& api = device_->api;
  const OnDevice here(api, device_->index);
  check(api, api.cudaIpcOpenEventHandle(&event_, native), "cudaIpcOpenEventHandle");
}

SharedEvent::~SharedEvent() {
  if (::getpid() != device_->owner) return;
  if (is_own_) page_.words().is_gone = 1;
  const OnDevice here(device_->api, device_->index);
  if (device_->api.cudaEventDestroy(event_) != cudaSuccess) static_cast<void>(device_->api.cudaGetLastError());
}

pliant_ipc_handle SharedEvent::handle() const {
  require_process(device_->owner);
  sdk::require(is_own_, "the event was imported; the process that created it exports it");
  HandleLabel label = HandleLabel::of(kMagic, page_.nonce());
  cudaIpcEventHandle_t native;
  const OnDevice here(device_->api, device_->index);
  check(device_->api, device_->api.cudaIpcGetEventHandle(&native, event_), "cudaIpcGetEventHandle");
  std::memcpy(label.native, &native, sizeof(native));
  return label.pack(page_);
}

void SharedEvent::require_there() const {
  require_process(device_->owner);
  if (page_.words().is_gone == 0) return;
  throw Failure(PLIANT_FAILED_PRECONDITION,
                "the process that created this event has destroyed it, or has ended; import what it has now");
}

void SharedEvent::submit(uint32_t number, const Api& api, cudaStream_t stream) const {
  try {
    page_.await_submitted(number - 1);
    check(api, api.cudaEventRecord(event_, stream), "cudaEventRecord");
  } catch (const Failure&) {
    page_.set_submitted(number);  // nobody shall wait for what will not come
    throw;
  }
  page_.set_submitted(number);
}

void SharedEvent::record(Stream& stream) {
  require_there();
  sdk::require(stream.device().index == device_->index,
               "the event is of device " + std::to_string(device_->index) + ", and the stream of device " +
                   std::to_string(stream.device().index) +
                   "; an event that passes between processes is recorded on streams of its own device");
  Stream::Turn turn(stream);
  page_.words().recorder = ::getpid();
  const uint32_t number = ++page_.words().asked;
  const auto submitting = [self = shared_from_this(), number](const Api& api, cudaStream_t handle) {
    self->submit(number, api, handle);
  };
  try {
    if (turn.is_direct() && page_.is_submitted(number - 1)) {
      turn.on_device(submitting);
    } else {
      turn.on_thread(submitting);
    }
  } catch (const Failure&) {
    page_.set_submitted(number);
    throw;
  }
  const std::lock_guard lock(mutex_);
  failures_ = stream.failures();
  work_ = turn.number();
}

bool SharedEvent::query() const {
  require_there();
  if (!page_.is_submitted(page_.words().asked)) return false;
  const cudaError_t result = device_->api.cudaEventQuery(event_);
  if (result != cudaSuccess) static_cast<void>(device_->api.cudaGetLastError());
  return result != cudaErrorNotReady;  // synchronize tells other errors
}

void SharedEvent::synchronize() {
  require_there();
  page_.await_submitted(page_.words().asked);
  const cudaError_t result = device_->api.cudaEventSynchronize(event_);
  std::shared_ptr<devices::FailureSlot> failures;
  uint64_t work = 0;
  {
    const std::lock_guard lock(mutex_);
    failures = failures_;
    work = work_;
  }
  if (failures) failures->tell(work);
  check(device_->api, result, "cudaEventSynchronize");
}

void SharedEvent::make_wait(Stream& stream) {
  require_there();
  Stream::Turn turn(stream);
  const uint32_t number = page_.words().asked;
  const auto wait = [self = shared_from_this(), number](const Api& api, cudaStream_t handle) {
    self->page_.await_submitted(number);
    check(api, api.cudaStreamWaitEvent(handle, self->event_, 0), "cudaStreamWaitEvent");
  };
  if (page_.is_submitted(number)) {
    turn.on_device(wait);
  } else {
    turn.on_thread(wait);
  }
}

}  // namespace pliant::cuda
