// The slots of an accelerator plugin with owners for what they make.
#include "accel/link.hpp"

#include "config/state.hpp"

namespace pliant::cli {

Link::Link(const Config& config)
    : instance_(std::make_unique<const plugin::Instance>(or_throw(plugin::instantiate(config, "accelerator")))),
      stream_memory_(std::make_unique<detail::StreamMemory>(*instance_)),
      collectives_(std::make_unique<detail::CollectivesOf>(*instance_, config.state().search)) {}

int32_t Link::device_count() const {
  int32_t count = 0;
  call(&pliant_accelerator::device_count, &count);
  return count;
}

std::string Link::why_no_devices() const {
  pliant_device_properties properties{};
  properties.struct_size = sizeof(properties);
  pliant_error error = plugin::fresh_error();
  if (table().device_properties(self(), 0, &properties, &error) == PLIANT_OK) return "";
  const std::string_view told = error.message;
  constexpr std::string_view kBefore = "devices: 0: ";  // the SDK's words
  const size_t at = told.find(kBefore);
  return at == std::string_view::npos ? "" : std::string(told.substr(at + kBefore.size()));
}

DeviceSeen Link::device(int32_t device) const {
  pliant_device_properties raw{};
  raw.struct_size = sizeof(raw);
  call(&pliant_accelerator::device_properties, device, &raw);
  raw.name[sizeof(raw.name) - 1] = '\0';
  return {raw.name,
          raw.memory_bytes,
          (raw.capabilities & PLIANT_CAP_HOST_VISIBLE) != 0,
          (raw.capabilities & PLIANT_CAP_FIXED_ORDER) != 0,
          (raw.capabilities & PLIANT_CAP_SHARED_MEMORY) != 0,
          (raw.capabilities & PLIANT_CAP_EXCHANGE_MEMORY) != 0,
          collectives().are_own(),
          collectives().are_there()};
}

Owned<pliant_stream> Link::make_stream(int32_t device) const {
  pliant_stream* made = nullptr;
  call(&pliant_accelerator::stream_create, device, static_cast<int32_t>(PLIANT_STREAM_COMPUTE),
       static_cast<int32_t>(PLIANT_PRIORITY_NORMAL), &made);
  return {self(), table().stream_destroy, made};
}

Owned<pliant_event> Link::make_event(int32_t device) const {
  pliant_event* made = nullptr;
  call(&pliant_accelerator::event_create, device, uint32_t{0}, &made);
  return {self(), table().event_destroy, made};
}

Owned<pliant_comm> Link::join(int32_t device, const pliant_comm_id& id, int32_t rank, int32_t ranks) const {
  pliant_comm* made = nullptr;
  call(&pliant_collectives::comm_create, device, &id, rank, ranks, &made);
  Owned<pliant_comm> comm(collectives().self(), collectives().table().comm_destroy, made);
  call(&pliant_collectives::comm_status, made, int32_t{-1});
  return comm;
}

void Link::synchronize(const Owned<pliant_stream>& stream) const {
  call(&pliant_accelerator::stream_synchronize, stream.get());
  told([&] { collectives().throw_failure(stream.get()); });
}

void* Link::take(int32_t device, uint64_t bytes, const Owned<pliant_stream>& stream) const {
  return told([&] { return stream_memory_->alloc(device, bytes, stream.get()); });
}

void Link::give_back(int32_t device, void* pointer, const Owned<pliant_stream>& stream) const {
  told([&] { stream_memory_->free(device, pointer, stream.get()); });
}

Memory::Memory(const Link& link, int32_t device, int32_t kind, uint64_t bytes)
    : link_(&link), bytes_(bytes), device_(device), kind_(kind) {
  link.call(&pliant_accelerator::alloc, device, kind, bytes, &pointer_);
}

Memory::~Memory() {
  if (pointer_ != nullptr) link_->table().free(link_->self(), device_, kind_, pointer_);
}

Memory::Memory(Memory&& other) noexcept
    : link_(other.link_),
      pointer_(std::exchange(other.pointer_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      device_(other.device_),
      kind_(other.kind_) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(link_, other.link_);
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  std::swap(kind_, other.kind_);
  return *this;
}

}  // namespace pliant::cli
