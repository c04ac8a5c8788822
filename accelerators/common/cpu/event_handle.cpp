// Makes and reads the handles of shared events.
#include "common/cpu/event_handle.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace pliant::accelerator {

using sdk::Failure;

namespace {
constexpr uint64_t kHandleMagic = 0x3156455443584e50;  // "PNXCTEV1"
}

EventLabel EventLabel::of(const SharedEvent& event, uint64_t magic) {
  return {magic,
          ProcessId::self_for_others().packed(),
          accelerator::pid_space(),
          {event.nonce().first, event.nonce().second}};
}

void EventLabel::require_foreign(uint64_t wanted_magic) const {
  sdk::require(magic == wanted_magic, "the handle is of no event of this accelerator, or was damaged on its way");
  sdk::require(pid_space == accelerator::pid_space(), "the handle is of another machine, boot or pid namespace");
  const ProcessId maker = ProcessId::unpack(process);
  if (maker == ProcessId::self()) {
    throw Failure(PLIANT_FAILED_PRECONDITION, "the event is of this very process; use the one that event_create gave");
  }
  if (ProcessId::of(maker.pid) != maker) {
    throw Failure(PLIANT_FAILED_PRECONDITION,
                  "process " + std::to_string(maker.pid) + ", which made the event of this handle, has ended");
  }
}

std::shared_ptr<SharedEvent> EventLabel::open(int descriptor, ProcessWatch& watch) const {
  auto made = SharedEvent::open(descriptor, {nonce[0], nonce[1]}, watch);
  made->watch(ProcessId::unpack(process));
  return made;
}

int duplicate_for_handle(int descriptor) {
  const int made = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (made >= 0) return made;
  throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("no file descriptor for a handle: ") + std::strerror(errno) +
                                               "; close some or raise the limit (ulimit -n)");
}

void require_exported(const SharedEvent* event) {
  sdk::require(event != nullptr, "the event was created without PLIANT_EVENT_EXPORTED; create it with that flag");
  sdk::require(event->is_own(), "the event was imported; export it in the process that created it");
}

pliant_ipc_handle export_event(const SharedEvent* event) {
  require_exported(event);
  const EventLabel label = EventLabel::of(*event, kHandleMagic);
  pliant_ipc_handle handle{};
  static_assert(sizeof(label) <= sizeof(handle.bytes));
  std::memcpy(handle.bytes, &label, sizeof(label));
  handle.descriptor = duplicate_for_handle(event->descriptor());
  return handle;
}

std::shared_ptr<SharedEvent> import_event(const pliant_ipc_handle& handle, ProcessWatch& watch) {
  EventLabel label{};
  std::memcpy(&label, handle.bytes, sizeof(label));
  label.require_foreign(kHandleMagic);
  sdk::require(handle.descriptor >= 0, "the handle came without its descriptor; pass it as SCM_RIGHTS");
  return label.open(handle.descriptor, watch);
}

}  // namespace pliant::accelerator
