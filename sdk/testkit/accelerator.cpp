// Handles of an accelerator, each made and given back through the slots.
#include "testkit/accelerator.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace pliant::testkit {

const char* status_name(int32_t status) {
  const char* const names[] = {"PLIANT_OK",
                               "PLIANT_INVALID_ARGUMENT",
                               "PLIANT_OUT_OF_RANGE",
                               "PLIANT_NOT_FOUND",
                               "PLIANT_FAILED_PRECONDITION",
                               "PLIANT_RESOURCE_EXHAUSTED",
                               "PLIANT_UNIMPLEMENTED",
                               "PLIANT_INTERNAL",
                               "PLIANT_ABORTED",
                               "PLIANT_PEER_LOST",
                               "PLIANT_DATA_LOSS",
                               "PLIANT_INCOMPATIBLE_WORLD_SIZE",
                               "PLIANT_DEADLINE_EXCEEDED"};
  return status >= 0 && status <= PLIANT_DEADLINE_EXCEEDED ? names[status] : "an unknown status";
}

std::string Outcome::text() const {
  return std::string(status_name(status)) + (message.empty() ? "" : " (" + message + ")");
}

void must(const char* slot, const Outcome& outcome) {
  if (!outcome.ok()) fail(std::string(slot) + " returned " + outcome.text());
}

Accelerator::Accelerator(const Subject& subject, Devices wanted)
    : plugin_(subject.file), options_(plugin_, subject.settings), instance_(plugin_, options_) {
  expect(instance_.status() == PLIANT_OK && self() != nullptr, "create returned " + instance_.text());
  take<pliant_accelerator>(plugin_.record().vtable);
  const auto extension = [this](const char* id) {
    const auto find = plugin_.record().extension;
    return find == nullptr ? nullptr : find(self(), id);
  };
  take<pliant_collectives>(extension(PLIANT_COLLECTIVES));
  take<pliant_ipc>(extension(PLIANT_IPC));
  take<pliant_stream_memory>(extension(PLIANT_STREAM_MEMORY));
  take<pliant_optimizer>(extension(PLIANT_OPTIMIZER));
  if (wanted == Devices::kAnyNumber) return;
  must("device_count", call(&pliant_accelerator::device_count, &devices_));
  if (devices_ <= 0) skip("there is no device");
  pliant_device_properties properties{};
  properties.struct_size = sizeof(properties);
  must("device_properties", call(&pliant_accelerator::device_properties, 0, &properties));
  capabilities_ = properties.capabilities;
}

template <class Table>
void Accelerator::take(const void* given) {
  if (given == nullptr) return;
  auto& part = std::get<Part<Table>>(parts_);
  part.table = sdk::widened<Table>(given);
  part.calls = {part.table, self()};
}

void Accelerator::move(void* to, const void* from, uint64_t bytes) const {
  if (bytes == 0) return;
  if (has(PLIANT_CAP_HOST_VISIBLE)) {
    std::memcpy(to, from, bytes);
    return;
  }
  const std::lock_guard lock(moving_);
  if (mover_.get() == nullptr) mover_ = Stream(*this).take();
  must("copy_async", call(&pliant_accelerator::copy_async, to, from, bytes, mover_));
  must("stream_synchronize", call(&pliant_accelerator::stream_synchronize, mover_));
}

void Accelerator::write(void* to, const void* from, uint64_t bytes) const {
  move(to, from, bytes);
}

void Accelerator::read(void* to, const void* from, uint64_t bytes) const {
  move(to, from, bytes);
}

Memory::Memory(const Accelerator& accelerator, uint64_t bytes, int32_t kind, int32_t device)
    : memory_(made_by(
          "alloc", [&] { return sdk::OwnedMemory(accelerator.calls<pliant_accelerator>(), device, kind, bytes); })) {}

Guarded::Guarded(const Accelerator& accelerator, uint64_t bytes, uint64_t offset)
    : accelerator_(accelerator), bytes_(bytes), offset_(offset), memory_(accelerator, bytes + offset + 2 * kGuard) {
  const Bytes all(bytes + offset + 2 * kGuard, kPattern);
  accelerator_.write(memory_.at(), all.data(), all.size());
}

Bytes Guarded::get(const std::string& what) const {
  Bytes all(bytes_ + offset_ + 2 * kGuard);
  accelerator_.read(all.data(), memory_.at(), all.size());
  const uint64_t begin = kGuard + offset_;
  for (uint64_t i = 0; i < all.size(); ++i) {
    if (i == begin) i += bytes_;
    if (i < all.size() && all[i] != kPattern) {
      const bool before = i < begin;
      fail(what + " changed the byte " + std::to_string(before ? begin - i : i - begin - bytes_ + 1) +
           (before ? " before its target" : " past the end of its target"));
    }
  }
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(bytes_)};
}

Stream::Stream(const Accelerator& accelerator, int32_t device, int32_t role, int32_t priority)
    : handle_(made_by("stream_create", [&] {
        return sdk::make_stream(accelerator.calls<pliant_accelerator>(), device, role, priority);
      })) {
  expect(handle_.get() != nullptr, "stream_create returned OK and created nothing");
}

Outcome Stream::synchronize() const {
  return handle_.calls().ask(&pliant_accelerator::stream_synchronize, handle_);
}

bool Stream::done() const {
  int32_t done = -1;
  must("stream_query", handle_.calls().ask(&pliant_accelerator::stream_query, handle_, &done));
  expect(done == 0 || done == 1, "stream_query set done to " + std::to_string(done) + ", which is neither 0 nor 1");
  return done == 1;
}

void Stream::wait_for(const Event& event) const {
  must("stream_wait_event",
       handle_.calls().ask(&pliant_accelerator::stream_wait_event, handle_, static_cast<pliant_event*>(event)));
}

Event::Event(const Accelerator& accelerator, uint32_t flags, int32_t device)
    : handle_(made_by("event_create",
                      [&] { return sdk::make_event(accelerator.calls<pliant_accelerator>(), device, flags); })) {
  expect(handle_.get() != nullptr, "event_create returned OK and created nothing");
}

Event::Event(const Accelerator& accelerator, const pliant_ipc_handle& handle)
    : handle_(made_by("import_event", [&] {
        return sdk::import_event(accelerator.calls<pliant_accelerator>(), accelerator.calls<pliant_ipc>(), 0, handle);
      })) {
  expect(handle_.get() != nullptr, "import_event returned OK and gave no event");
}

void Event::record(const Stream& stream) const {
  must("event_record", handle_.calls().ask(&pliant_accelerator::event_record, handle_, stream));
}

bool Event::done() const {
  int32_t done = -1;
  must("event_query", handle_.calls().ask(&pliant_accelerator::event_query, handle_, &done));
  expect(done == 0 || done == 1, "event_query set done to " + std::to_string(done) + ", which is neither 0 nor 1");
  return done == 1;
}

Outcome Event::synchronize() const {
  return handle_.calls().ask(&pliant_accelerator::event_synchronize, handle_);
}

void returns_soon(const std::string& what, const std::function<void()>& call) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool returned = false;
  };
  const auto shared = std::make_shared<Shared>();
  std::thread caller([shared, &call] {
    call();
    const std::lock_guard lock(shared->mutex);
    shared->returned = true;
    shared->changed.notify_all();
  });
  {
    std::unique_lock lock(shared->mutex);
    const bool in_time =
        shared->changed.wait_for(lock, std::chrono::milliseconds(kReturnMs), [&] { return shared->returned; });
    if (!in_time) fail(what + " has not returned after " + std::to_string(kReturnMs / 1000) + " seconds");
  }
  caller.join();
}

}  // namespace pliant::testkit
