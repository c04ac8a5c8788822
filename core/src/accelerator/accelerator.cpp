// Accelerator, Stream, Event and memory over the slots of an accelerator plugin.
#include "pliant/accelerator.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "accelerator/state.hpp"
#include "base/inside.hpp"
#include "config/instances.hpp"
#include "config/state.hpp"
#include "pliant/sdk/accelerator.hpp"

namespace pliant {

namespace {

/// What the device has of that kind, or of the one that serves instead.
MemoryKind kind_there(const Accelerator& accelerator, int32_t device, MemoryKind kind) {
  if (kind == MemoryKind::kShared && !accelerator.properties(device).shared_memory) return MemoryKind::kPinned;
  if (kind == MemoryKind::kExchange && !accelerator.properties(device).exchange_memory) return MemoryKind::kDevice;
  if (kind == MemoryKind::kWindow && !accelerator.properties(device).window_memory) return MemoryKind::kDevice;
  return kind;
}

/// The pointer that is aligned: by the plugin, or, where it aligns nothing, inside of more memory.
void* alloc_aligned(sdk::OwnedMemory& memory, const sdk::Calls<pliant_accelerator>& slots, int32_t device, int32_t kind,
                    uint64_t bytes, uint64_t alignment) {
  try {
    memory = sdk::OwnedMemory(slots, device, kind, bytes, alignment);
    return memory.get();
  } catch (const sdk::Failure& failure) {
    if (failure.status() != PLIANT_UNIMPLEMENTED) throw;
  }
  const uint64_t more = std::min(alignment - 1, std::numeric_limits<uint64_t>::max() - bytes);
  memory = sdk::OwnedMemory(slots, device, kind, bytes + more);
  const uint64_t past = reinterpret_cast<uintptr_t>(memory.get()) % alignment;
  return static_cast<std::byte*>(memory.get()) + (past == 0 ? 0 : alignment - past);
}

/// A function of the host, which owns how long.
void wait_on_host(void* nanoseconds) {
  const std::unique_ptr<std::chrono::nanoseconds> time(static_cast<std::chrono::nanoseconds*>(nanoseconds));
  std::this_thread::sleep_for(*time);
}

}  // namespace

Accelerator::Accelerator(const Config& config)
    : state_(std::make_shared<State>(or_throw(config::instantiate(config, "accelerator")),
                                     detail::inside(config).search)) {}

int32_t Accelerator::device_count() const {
  int32_t count = 0;
  state_->call(&pliant_accelerator::device_count, &count);
  return count;
}

std::string Accelerator::why_no_devices() const {
  if (!state_->slots().has(&pliant_accelerator::why_no_devices)) return {};
  std::array<char, 512> text{};
  state_->call(&pliant_accelerator::why_no_devices, text.data(), text.size());
  text.back() = '\0';
  return text.data();
}

DeviceProperties Accelerator::properties(int32_t device) const {
  const pliant_device_properties raw = state_->properties(device);
  const auto has = [&raw](uint32_t capability) { return (raw.capabilities & capability) != 0; };
  return {raw.name,
          raw.memory_bytes,
          has(PLIANT_CAP_HOST_VISIBLE),
          has(PLIANT_CAP_FIXED_ORDER),
          has(PLIANT_CAP_SHARED_MEMORY),
          has(PLIANT_CAP_EXCHANGE_MEMORY),
          has(PLIANT_CAP_WINDOW_MEMORY)};
}

MemoryInfo Accelerator::memory_info(int32_t device) const {
  MemoryInfo info;
  state_->call(&pliant_accelerator::memory_info, device, &info.free_bytes, &info.total_bytes);
  return info;
}

std::optional<PointerInfo> Accelerator::pointer_info(const void* pointer) const {
  if (!state_->slots().has(&pliant_accelerator::pointer_info)) return std::nullopt;
  pliant_pointer_info raw{};
  raw.struct_size = sizeof(raw);
  raw.device = -1;
  state_->call(&pliant_accelerator::pointer_info, pointer, &raw);
  if (raw.memory < PLIANT_MEMORY_DEVICE || raw.memory > PLIANT_MEMORY_WINDOW) return std::nullopt;
  return PointerInfo{static_cast<MemoryKind>(raw.memory), raw.device, raw.base, raw.bytes};
}

CommId Accelerator::make_comm_id(int32_t world_size) const {
  pliant_comm_id raw{};
  state_->call(&pliant_collectives::comm_id, world_size, &raw);
  CommId id{};
  static_assert(sizeof(id) == sizeof(raw.bytes));
  std::memcpy(id.data(), raw.bytes, sizeof(raw.bytes));
  return id;
}

void Accelerator::trim(int32_t device, uint64_t keep_bytes) const {
  state_->told([&] { state_->stream_memory.trim(device, keep_bytes); });
}

struct Buffer::State {
  std::shared_ptr<Accelerator::State> accelerator;
  sdk::OwnedMemory memory;
};

Buffer::Buffer() = default;
Buffer::~Buffer() = default;

Buffer::Buffer(const Accelerator& accelerator, int32_t device, uint64_t bytes, MemoryKind kind, uint64_t alignment)
    : state_(std::make_unique<State>(State{detail::shared_inside(accelerator), {}})), bytes_(bytes) {
  if (!std::has_single_bit(alignment) || alignment > kPageAlignment) {
    throw Error(Status::kInvalidArgument, "the alignment of a buffer is a power of two up to " +
                                              std::to_string(kPageAlignment) + "; got " + std::to_string(alignment));
  }
  const MemoryKind there = kind_there(accelerator, device, kind);
  // Device memory in place of a window's begins where a window's would.
  if (kind == MemoryKind::kWindow) alignment = kPageAlignment;
  const bool is_aligned = alignment <= kAlignment || there == MemoryKind::kWindow || bytes == 0;
  const sdk::Calls<pliant_accelerator> slots = state_->accelerator->slots();
  const auto number = static_cast<int32_t>(there);
  pointer_ = state_->accelerator->told([&] {
    if (!is_aligned) return alloc_aligned(state_->memory, slots, device, number, bytes, alignment);
    state_->memory = sdk::OwnedMemory(slots, device, number, bytes);
    return state_->memory.get();
  });
}

Buffer::Buffer(Buffer&& other) noexcept
    : state_(std::move(other.state_)),
      pointer_(std::exchange(other.pointer_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

RegisteredMemory::RegisteredMemory(const Accelerator& accelerator, void* pointer, uint64_t bytes)
    : pointer_(pointer), bytes_(bytes) {
  std::shared_ptr<Accelerator::State> state = detail::shared_inside(accelerator);
  if (!state->slots().has(&pliant_accelerator::unregister_host)) return;
  try {
    state->call(&pliant_accelerator::register_host, pointer, bytes);
  } catch (const Error& error) {
    if (error.status() == Status::kUnimplemented || error.status() == Status::kResourceExhausted) return;
    throw;
  }
  pinned_by_ = std::move(state);
}

RegisteredMemory::~RegisteredMemory() {
  if (pinned_by_ == nullptr) return;
  const sdk::Calls<pliant_accelerator> slots = pinned_by_->slots();
  slots->unregister_host(slots.self(), pointer_);
}

RegisteredMemory::RegisteredMemory(RegisteredMemory&& other) noexcept
    : pinned_by_(std::move(other.pinned_by_)),
      pointer_(std::exchange(other.pointer_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&& other) noexcept {
  std::swap(pinned_by_, other.pinned_by_);
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

StreamBuffer::StreamBuffer(Stream& stream, uint64_t bytes) : stream_(&detail::inside(stream)), bytes_(bytes) {
  Accelerator::State& accelerator = *stream_->accelerator;
  pointer_ = accelerator.told([&] { return accelerator.stream_memory.alloc(stream_->device, bytes, stream_->handle); });
}

StreamBuffer::~StreamBuffer() {
  if (pointer_ == nullptr) return;
  try {
    stream_->accelerator->stream_memory.free(stream_->device, pointer_, stream_->handle);
  } catch (const sdk::Failure&) {  // NOLINT(bugprone-empty-catch): the device is lost, and its memory with it
  }
}

StreamBuffer::StreamBuffer(StreamBuffer&& other) noexcept
    : stream_(other.stream_),
      pointer_(std::exchange(other.pointer_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

StreamBuffer& StreamBuffer::operator=(StreamBuffer&& other) noexcept {
  std::swap(stream_, other.stream_);
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Event::Event(const Accelerator& accelerator, int32_t device, bool timing)
    : state_(std::make_unique<State>(detail::shared_inside(accelerator))) {
  const uint32_t flags = timing ? uint32_t{PLIANT_EVENT_TIMING} : 0;
  state_->accelerator->told([&] { state_->handle = sdk::make_event(state_->accelerator->slots(), device, flags); });
}

Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(Stream& stream) {
  state_->accelerator->call(&pliant_accelerator::event_record, state_->handle, detail::inside(stream).handle);
}

bool Event::is_reached() const {
  int32_t done = 0;
  state_->accelerator->call(&pliant_accelerator::event_query, state_->handle, &done);
  return done != 0;
}

void Event::synchronize() {
  state_->accelerator->call(&pliant_accelerator::event_synchronize, state_->handle);
}

double Event::seconds_since(const Event& begin) const {
  double seconds = 0;
  state_->accelerator->call(&pliant_accelerator::event_elapsed, detail::inside(begin).handle, state_->handle, &seconds);
  return seconds;
}

Stream::Stream(const Accelerator& accelerator, int32_t device, StreamRole role, Priority priority)
    : state_(std::make_unique<State>(detail::shared_inside(accelerator), device)) {
  state_->accelerator->told([&] {
    state_->handle = sdk::make_stream(state_->accelerator->slots(), device, static_cast<int32_t>(role),
                                      static_cast<int32_t>(priority));
  });
}

Stream::~Stream() = default;
Stream::Stream(Stream&&) noexcept = default;

void Stream::synchronize() {
  Accelerator::State& accelerator = *state_->accelerator;
  const auto tell_of_collectives = [&](int32_t status) {
    accelerator.told([&] { accelerator.collectives.throw_failure(state_->handle, status); });
  };
  try {
    accelerator.call(&pliant_accelerator::stream_synchronize, state_->handle);
  } catch (const Error& error) {
    // Why a communicator was aborted, and which rank is lost, the plugin may not know.
    if (error.status() == Status::kAborted) tell_of_collectives(PLIANT_ABORTED);
    if (error.status() == Status::kPeerLost) tell_of_collectives(PLIANT_PEER_LOST);
    throw;
  }
  tell_of_collectives(PLIANT_OK);  // what they met that the plugin knows nothing of
}

bool Stream::is_idle() const {
  int32_t done = 0;
  state_->accelerator->call(&pliant_accelerator::stream_query, state_->handle, &done);
  return done != 0;
}

void Stream::wait(const Event& event) {
  state_->accelerator->call(&pliant_accelerator::stream_wait_event, state_->handle, detail::inside(event).handle);
}

void Stream::copy(void* to, const void* from, uint64_t bytes) {
  state_->accelerator->call(&pliant_accelerator::copy_async, to, from, bytes, state_->handle);
}

void Stream::fill(void* to, uint8_t byte, uint64_t bytes) {
  state_->accelerator->call(&pliant_accelerator::fill_async, to, byte, bytes, state_->handle);
}

void Stream::reduce(void* to, std::span<const void* const> from, uint64_t count, DType dtype, ReduceOp op,
                    double scale) {
  state_->accelerator->call(&pliant_accelerator::reduce_async, to, from.data(), from.size(), count,
                            static_cast<int32_t>(dtype), static_cast<int32_t>(op), scale, state_->handle);
}

void Stream::cast(void* to, DType to_type, const void* from, DType from_type, uint64_t count) {
  state_->accelerator->call(&pliant_accelerator::cast_async, to, static_cast<int32_t>(to_type), from,
                            static_cast<int32_t>(from_type), count, state_->handle);
}

bool Stream::digest_blocks(uint64_t* to, const void* from, uint64_t blocks) {
  const sdk::Calls<pliant_accelerator> slots = state_->accelerator->slots();
  if (!slots.has(&pliant_accelerator::digest_blocks_async)) return false;
  try {
    state_->accelerator->call(&pliant_accelerator::digest_blocks_async, to, from, blocks, state_->handle);
    return true;
  } catch (const Error& error) {
    if (error.status() != Status::kUnimplemented) throw;
    return false;
  }
}

void Stream::spend(std::chrono::nanoseconds time) {
  if (time.count() < 0 || static_cast<uint64_t>(time.count()) > sdk::kMostSpentNs) {
    throw Error(Status::kInvalidArgument, "a stream can be kept busy for 0 to " + std::to_string(sdk::kMostSpentNs) +
                                              " ns at once; got " + std::to_string(time.count()));
  }
  try {
    return state_->accelerator->call(&pliant_accelerator::spend_async, time.count(), state_->handle);
  } catch (const Error& error) {
    if (error.status() != Status::kUnimplemented) throw;
  }
  auto waited = std::make_unique<std::chrono::nanoseconds>(time);
  state_->accelerator->call(&pliant_accelerator::host_function, &wait_on_host, static_cast<void*>(waited.get()),
                            state_->handle);
  static_cast<void>(waited.release());  // it is the function's
}

}  // namespace pliant
