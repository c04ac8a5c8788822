// Accelerator, Buffer, Stream and Communicator over the slots of an accelerator plugin.
#include "pliant/accelerator.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include "accelerator/collectives_of.hpp"
#include "config/state.hpp"
#include "pliant/sdk/failure.hpp"
#include "plugin/plugin.hpp"

namespace pliant {

struct Accelerator::State {
  plugin::Instance instance;
  detail::CollectivesOf collectives;

  State(plugin::Instance made, const std::vector<plugin::SearchDir>& search)
      : instance(std::move(made)), collectives(instance, search) {}

  [[nodiscard]] const pliant_accelerator& table() const { return instance.table<pliant_accelerator>(); }

  /// What enqueued collectives met that the plugin knows nothing of.
  void throw_failure(pliant_stream* stream) {
    try {
      collectives.throw_failure(stream);
    } catch (const sdk::Failure& failure) {
      pliant_error error = plugin::fresh_error();
      sdk::detail::set_error(&error, failure.status(), failure.what());
      fail(failure.status(), error);
    }
  }

  /// Calls slot(self, args..., error); throws what it reports.
  template <class... Parameters, class... Arguments>
  void call(int32_t (*slot)(void*, Parameters...), Arguments... arguments) const {
    call_on(instance.self(), slot, arguments...);
  }
  /// The same for a slot of the collectives.
  template <class... Parameters, class... Arguments>
  void call(int32_t (*pliant_collectives::*slot)(void*, Parameters...), Arguments... arguments) {
    const pliant_collectives& table = collectives.table();
    const auto* const place = reinterpret_cast<const std::byte*>(&(table.*slot));
    if (static_cast<size_t>(place - reinterpret_cast<const std::byte*>(&table)) >= table.struct_size) {
      throw Error(Status::kUnimplemented, "accelerator \"" + std::string(instance.plugin().record().name) +
                                              "\" was built for an older Pliant and has no such collective");
    }
    call_on(collectives.self(), table.*slot, arguments...);
  }

 private:
  template <class... Parameters, class... Arguments>
  void call_on(void* self, int32_t (*slot)(void*, Parameters...), Arguments... arguments) const {
    pliant_error error = plugin::fresh_error();
    const int32_t status = slot(self, arguments..., &error);
    if (status != PLIANT_OK) fail(status, error);
  }
  /// Losing a rank, memory or time is no fault of the plugin, so it does not ask for the exit code of one.
  [[noreturn]] void fail(int32_t status, const pliant_error& error) const {
    Error made = plugin::to_error(instance.plugin(), status, error);
    switch (made.status()) {
      case Status::kAborted:
      case Status::kPeerLost:
      case Status::kDeadlineExceeded:
      case Status::kResourceExhausted:
        throw Error(made.status(), made.message(), ExitCode::kFailed);
      default:
        throw made;
    }
  }
};

struct Stream::State {
  std::shared_ptr<Accelerator::State> accelerator;
  pliant_stream* handle = nullptr;

  ~State() {
    if (handle == nullptr) return;
    accelerator->table().stream_destroy(accelerator->instance.self(), handle);
    accelerator->collectives.forget(handle);
  }
};

struct Communicator::State {
  std::shared_ptr<Accelerator::State> accelerator;
  pliant_comm* handle = nullptr;
  int32_t rank = 0;
  int32_t world_size = 0;

  ~State() {
    if (handle == nullptr) return;
    accelerator->collectives.table().comm_destroy(accelerator->collectives.self(), handle);
  }
};

Accelerator::Accelerator(const Config& config)
    : state_(std::make_shared<State>(or_throw(plugin::instantiate(config, "accelerator")), config.state().search)) {}

int32_t Accelerator::device_count() const {
  int32_t count = 0;
  state_->call(state_->table().device_count, &count);
  return count;
}

DeviceProperties Accelerator::properties(int32_t device) const {
  pliant_device_properties raw{};
  raw.struct_size = sizeof(raw);
  state_->call(state_->table().device_properties, device, &raw);
  raw.name[sizeof(raw.name) - 1] = '\0';
  return {raw.name, raw.memory_bytes, (raw.capabilities & PLIANT_CAP_HOST_VISIBLE) != 0,
          (raw.capabilities & PLIANT_CAP_FIXED_ORDER) != 0};
}

CommId Accelerator::make_comm_id(int32_t world_size) const {
  pliant_comm_id raw{};
  state_->call(&pliant_collectives::comm_id, world_size, &raw);
  CommId id{};
  static_assert(sizeof(id) == sizeof(raw.bytes));
  std::memcpy(id.data(), raw.bytes, sizeof(raw.bytes));
  return id;
}

Buffer::Buffer(const Accelerator& accelerator, int32_t device, uint64_t bytes, bool pinned)
    : accelerator_(accelerator.state()),
      bytes_(bytes),
      device_(device),
      memory_(pinned ? PLIANT_MEMORY_PINNED : PLIANT_MEMORY_DEVICE) {
  accelerator_->call(accelerator_->table().alloc, device_, memory_, bytes, &pointer_);
}

Buffer::~Buffer() {
  if (pointer_ != nullptr) accelerator_->table().free(accelerator_->instance.self(), device_, memory_, pointer_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : accelerator_(std::move(other.accelerator_)),
      pointer_(std::exchange(other.pointer_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      device_(other.device_),
      memory_(other.memory_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(accelerator_, other.accelerator_);
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  std::swap(memory_, other.memory_);
  return *this;
}

Stream::Stream(const Accelerator& accelerator, int32_t device) : state_(std::make_unique<State>()) {
  state_->accelerator = accelerator.state();
  state_->accelerator->call(state_->accelerator->table().stream_create, device, PLIANT_STREAM_COMPUTE,
                            PLIANT_PRIORITY_NORMAL, &state_->handle);
}

Stream::~Stream() = default;
Stream::Stream(Stream&&) noexcept = default;

void Stream::synchronize() {
  state_->accelerator->call(state_->accelerator->table().stream_synchronize, state_->handle);
  state_->accelerator->throw_failure(state_->handle);
}

void Stream::copy(void* to, const void* from, uint64_t bytes) {
  state_->accelerator->call(state_->accelerator->table().copy_async, to, from, bytes, state_->handle);
}

Communicator::Communicator(const Accelerator& accelerator, int32_t device, const CommId& id, int32_t rank,
                           int32_t world_size)
    : state_(std::make_unique<State>()) {
  state_->accelerator = accelerator.state();
  state_->rank = rank;
  state_->world_size = world_size;
  pliant_comm_id raw{};
  std::memcpy(raw.bytes, id.data(), sizeof(raw.bytes));
  state_->accelerator->call(&pliant_collectives::comm_create, device, &raw, rank, world_size, &state_->handle);
}

Communicator::~Communicator() = default;

int32_t Communicator::rank() const {
  return state_->rank;
}

int32_t Communicator::world_size() const {
  return state_->world_size;
}

void Communicator::wait_ready(int32_t timeout_ms) {
  state_->accelerator->call(&pliant_collectives::comm_status, state_->handle, timeout_ms);
}

void Communicator::abort() noexcept {
  detail::CollectivesOf& collectives = state_->accelerator->collectives;
  collectives.table().comm_abort(collectives.self(), state_->handle);
}

void Communicator::all_reduce(const void* send, void* recv, uint64_t count, DType dtype, ReduceOp op, Stream& stream) {
  state_->accelerator->call(&pliant_collectives::all_reduce, state_->handle, send, recv, count,
                            static_cast<int32_t>(dtype), static_cast<int32_t>(op), stream.state().handle);
}

void Communicator::all_gather(const void* send, void* recv, uint64_t count, DType dtype, Stream& stream) {
  state_->accelerator->call(&pliant_collectives::all_gather, state_->handle, send, recv, count,
                            static_cast<int32_t>(dtype), stream.state().handle);
}

void Communicator::reduce_scatter(const void* send, void* recv, uint64_t count, DType dtype, ReduceOp op,
                                  Stream& stream) {
  state_->accelerator->call(&pliant_collectives::reduce_scatter, state_->handle, send, recv, count,
                            static_cast<int32_t>(dtype), static_cast<int32_t>(op), stream.state().handle);
}

void Communicator::broadcast(void* buffer, uint64_t count, DType dtype, int32_t root, Stream& stream) {
  state_->accelerator->call(&pliant_collectives::broadcast, state_->handle, buffer, count, static_cast<int32_t>(dtype),
                            root, stream.state().handle);
}

void Communicator::barrier(Stream& stream) {
  state_->accelerator->call(&pliant_collectives::barrier, state_->handle, stream.state().handle);
}

void Communicator::all_gather_v(const void* send, void* recv, std::span<const uint64_t> counts, DType dtype,
                                Stream& stream) {
  if (counts.size() != static_cast<size_t>(state_->world_size)) {
    throw Error(Status::kInvalidArgument, "all_gather_v needs a count for each of " +
                                              std::to_string(state_->world_size) + " ranks; got " +
                                              std::to_string(counts.size()));
  }
  state_->accelerator->call(&pliant_collectives::all_gather_v, state_->handle, send, recv, counts.data(),
                            static_cast<int32_t>(dtype), stream.state().handle);
}

void Communicator::send(const void* buffer, uint64_t count, DType dtype, int32_t peer, Stream& stream) {
  state_->accelerator->call(&pliant_collectives::send, state_->handle, buffer, count, static_cast<int32_t>(dtype), peer,
                            stream.state().handle);
}

void Communicator::recv(void* buffer, uint64_t count, DType dtype, int32_t peer, Stream& stream) {
  state_->accelerator->call(&pliant_collectives::recv, state_->handle, buffer, count, static_cast<int32_t>(dtype), peer,
                            stream.state().handle);
}

void Communicator::begin_group() {
  state_->accelerator->call(&pliant_collectives::group_begin, state_->handle);
}

void Communicator::end_group() {
  state_->accelerator->call(&pliant_collectives::group_end, state_->handle);
}

}  // namespace pliant
