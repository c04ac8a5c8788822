// The accelerator `broken`: the host's device with the fault that its option names. All faults share these slots: to
// compile them for each fault anew took an eighth of a whole build.
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "faults.hpp"
#include "pliant/sdk/collectives.hpp"
#include "pliant/sdk/ipc.hpp"
#include "pliant/sdk/optimizer.hpp"
#include "pliant/sdk/stream_memory.hpp"

namespace pliant::broken {
namespace {

/// Hands every call to the fault.
class Broken {
 public:
  using Stream = Honest::Stream;
  using Event = Honest::Event;
  using Comm = Honest::Comm;

  static void options(sdk::Options<Broken>& table) {
    table.add("fault", &Broken::name_, "What is wrong: none, a fault's name, or that, a dot and its way.");
  }
  void start(const sdk::Host&);
  const void* extension(const char* id) const;
  [[nodiscard]] Honest& fault() { return *fault_; }

  int32_t device_count() { return fault_->device_count(); }
  sdk::DeviceProperties device_properties(int32_t device) { return fault_->device_properties(device); }
  void* alloc(int32_t device, Memory memory, uint64_t bytes) { return fault_->alloc(device, memory, bytes); }
  void* alloc_aligned(int32_t device, Memory memory, uint64_t bytes, uint64_t alignment) {
    return fault_->alloc_aligned(device, memory, bytes, alignment);
  }
  void free(int32_t device, Memory memory, void* pointer) { fault_->free(device, memory, pointer); }
  sdk::MemoryInfo memory_info(int32_t device) { return fault_->memory_info(device); }
  std::optional<sdk::PointerInfo> pointer_info(const void* pointer) { return fault_->pointer_info(pointer); }
  void register_host(void* pointer, uint64_t bytes) { fault_->register_host(pointer, bytes); }
  void unregister_host(void* pointer) { fault_->unregister_host(pointer); }

  std::unique_ptr<Stream> make_stream(int32_t device, sdk::StreamUse use) { return fault_->make_stream(device, use); }
  std::unique_ptr<Event> make_event(int32_t device, bool timing) { return fault_->make_event(device, timing); }
  std::unique_ptr<Event> make_exported_event(int32_t device) { return fault_->make_exported_event(device); }
  void synchronize(Stream& stream) { fault_->synchronize(stream); }
  void synchronize(Event& event) { fault_->synchronize(event); }
  void record(Event& event, Stream& stream) { fault_->record(event, stream); }
  bool query(Event& event) { return fault_->query(event); }
  bool query(Stream& stream) { return fault_->query(stream); }
  double elapsed(Event& begin, Event& end) { return fault_->elapsed(begin, end); }
  void wait(Stream& stream, Event& event) { fault_->wait(stream, event); }

  void copy(void* to, const void* from, uint64_t bytes, Stream& stream) { fault_->copy(to, from, bytes, stream); }
  void copy(std::span<const pliant_copy> copies, Stream& stream) { fault_->copy(copies, stream); }
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) { fault_->fill(to, byte, bytes, stream); }
  void reduce(void* to, std::span<const void* const> from, Elements elements, ReduceOp op, double scale,
              Stream& stream) {
    fault_->reduce(to, from, elements, op, scale, stream);
  }
  void cast(void* to, DType to_type, const void* from, Elements elements, Stream& stream) {
    fault_->cast(to, to_type, from, elements, stream);
  }
  void digest_blocks(uint64_t* to, const void* from, uint64_t blocks, Stream& stream) {
    fault_->digest_blocks(to, from, blocks, stream);
  }
  void adamw(const pliant_adamw_update& update, const sdk::AdamWArrays& arrays, Stream& stream) {
    fault_->adamw(update, arrays, stream);
  }
  void squared_norms(double* to, const float* from, uint64_t count, Stream& stream) {
    fault_->squared_norms(to, from, count, stream);
  }
  void call(void (*function)(void*), void* context, Stream& stream) { fault_->call(function, context, stream); }
  void spend(uint64_t nanoseconds, Stream& stream) { fault_->spend(nanoseconds, stream); }

  pliant_ipc_handle export_memory(int32_t device, const void* pointer) {
    return fault_->export_memory(device, pointer);
  }
  void* import_memory(int32_t device, const pliant_ipc_handle& handle) { return fault_->import_memory(device, handle); }
  void release_memory(int32_t device, void* pointer) { fault_->release_memory(device, pointer); }
  pliant_ipc_handle export_event(Event& event) { return fault_->export_event(event); }
  std::unique_ptr<Event> import_event(int32_t device, const pliant_ipc_handle& handle) {
    return fault_->import_event(device, handle);
  }

  void* alloc_async(int32_t device, uint64_t bytes, Stream& stream) {
    return fault_->alloc_async(device, bytes, stream);
  }
  void free_async(int32_t device, void* pointer, Stream& stream) { fault_->free_async(device, pointer, stream); }
  void trim(int32_t device, uint64_t keep_bytes) { fault_->trim(device, keep_bytes); }

  pliant_comm_id make_comm_id(int32_t world_size) { return fault_->make_comm_id(world_size); }
  std::unique_ptr<Comm> make_comm(int32_t device, const pliant_comm_id& id, int32_t rank, int32_t world_size) {
    return fault_->make_comm(device, id, rank, world_size);
  }
  int32_t world_size(const Comm& comm) { return fault_->world_size(comm); }
  int32_t rank(const Comm& comm) { return fault_->rank(comm); }
  void wait_ready(Comm& comm, int32_t timeout_ms) { fault_->wait_ready(comm, timeout_ms); }
  void abort(Comm& comm) { fault_->abort(comm); }
  bool query(Comm& comm) { return fault_->query(comm); }
  std::unique_ptr<Comm> shrink(Comm& old, std::span<const int32_t> without, const pliant_comm_id& id) {
    return fault_->shrink(old, without, id);
  }
  std::unique_ptr<Comm> grow(int32_t device, Comm* old, const pliant_comm_id& id, int32_t rank, int32_t world_size) {
    return fault_->grow(device, old, id, rank, world_size);
  }
  void all_reduce(Comm& comm, const void* send, void* recv, Elements elements, ReduceOp op, Stream& stream) {
    fault_->all_reduce(comm, send, recv, elements, op, stream);
  }
  void all_gather(Comm& comm, const void* send, void* recv, Elements elements, Stream& stream) {
    fault_->all_gather(comm, send, recv, elements, stream);
  }
  void reduce_scatter(Comm& comm, const void* send, void* recv, Elements elements, ReduceOp op, Stream& stream) {
    fault_->reduce_scatter(comm, send, recv, elements, op, stream);
  }
  void broadcast(Comm& comm, void* buffer, Elements elements, int32_t root, Stream& stream) {
    fault_->broadcast(comm, buffer, elements, root, stream);
  }
  void barrier(Comm& comm, Stream& stream) { fault_->barrier(comm, stream); }
  void all_gather_v(Comm& comm, const void* send, void* recv, std::span<const uint64_t> counts, DType dtype,
                    Stream& stream) {
    fault_->all_gather_v(comm, send, recv, counts, dtype, stream);
  }
  void gather_pieces(Comm& comm, const void* send, void* recv, sdk::PieceTable pieces, DType dtype, Stream& stream) {
    fault_->gather_pieces(comm, send, recv, std::move(pieces), dtype, stream);
  }
  void scatter_pieces(Comm& comm, const void* send, void* recv, sdk::PieceTable pieces, std::span<const uint8_t> adds,
                      DType dtype, Stream& stream) {
    fault_->scatter_pieces(comm, send, recv, std::move(pieces), adds, dtype, stream);
  }
  void send(Comm& comm, const void* buffer, Elements elements, int32_t peer, Stream& stream) {
    fault_->send(comm, buffer, elements, peer, stream);
  }
  void recv(Comm& comm, void* buffer, Elements elements, int32_t peer, Stream& stream) {
    fault_->recv(comm, buffer, elements, peer, stream);
  }
  void begin_group(Comm& comm) { fault_->begin_group(comm); }
  void end_group(Comm& comm) { fault_->end_group(comm); }
  void register_window(Comm& comm, void* pointer, uint64_t bytes, Stream& stream) {
    fault_->register_window(comm, pointer, bytes, stream);
  }

 private:
  std::string name_ = "none";
  std::unique_ptr<Honest> fault_;
  pliant_collectives collectives_{};  ///< the slots that the fault offers
};

using Adapter = sdk::detail::AcceleratorAdapter<Broken>;

const pliant_accelerator& sdk_slots() {
  return *static_cast<const pliant_accelerator*>(Adapter::vtable());
}

Honest& fault_of(void* self) {
  return Adapter::device_of(self).fault();
}

Honest::Slots honest(void* self) {
  return {sdk_slots(), self};
}

template <class Object, class Handle>
void destroy(void* self, Handle* handle) noexcept {
  if (handle != nullptr) fault_of(self).destroy(std::unique_ptr<Object>(reinterpret_cast<Object*>(handle)));
}

/// The SDK's, but for those that Honest has, as slots or as destroy().
const pliant_accelerator& slots() {
  static const pliant_accelerator kTable = [] {
    pliant_accelerator made = sdk_slots();
    made.device_count = [](void* self, int32_t* count, pliant_error* error) {
      return fault_of(self).device_count_slot(honest(self), count, error);
    };
    made.device_properties = [](void* self, int32_t device, pliant_device_properties* out, pliant_error* error) {
      return fault_of(self).device_properties_slot(honest(self), device, out, error);
    };
    made.alloc = [](void* self, int32_t device, int32_t memory, uint64_t bytes, void** out, pliant_error* error) {
      return fault_of(self).alloc_slot(honest(self), device, memory, bytes, out, error);
    };
    made.free = [](void* self, int32_t device, int32_t memory, void* pointer) {
      fault_of(self).free_slot(honest(self), device, memory, pointer);
    };
    made.stream_create = [](void* self, int32_t device, int32_t role, int32_t priority, pliant_stream** out,
                            pliant_error* error) {
      return fault_of(self).stream_create_slot(honest(self), device, role, priority, out, error);
    };
    made.stream_destroy = &destroy<Honest::Stream, pliant_stream>;
    made.event_destroy = &destroy<Honest::Event, pliant_event>;
    return made;
  }();
  return kTable;
}

int32_t gather_any_pieces(void* self, pliant_comm* comm, const void* send, void* recv, const pliant_piece* pieces,
                          uint64_t piece_count, int32_t dtype, pliant_stream* stream, pliant_error* error) {
  const pliant_collectives& sdk = *sdk::collectives_table<Broken>();
  const int32_t status = sdk.gather_pieces(self, comm, send, recv, pieces, piece_count, dtype, stream, error);
  return status == PLIANT_INVALID_ARGUMENT ? PLIANT_OK : status;
}

void Broken::start(const sdk::Host&) {
  fault_ = make_fault(name_);
  collectives_ = *sdk::collectives_table<Broken>();
  collectives_.comm_destroy = &destroy<Comm, pliant_comm>;
  if (fault_->offers.any_pieces) collectives_.gather_pieces = &gather_any_pieces;
  if (!fault_->offers.comm_query) collectives_.comm_query = nullptr;
  if (!fault_->offers.comm_shrink) collectives_.comm_shrink = nullptr;
  if (!fault_->offers.comm_grow) collectives_.comm_grow = nullptr;
}

const void* Broken::extension(const char* id) const {
  const auto is_asked = [id](const char* one) { return std::strcmp(id, one) == 0; };
  if (is_asked(PLIANT_COLLECTIVES)) return &collectives_;
  if (is_asked(PLIANT_IPC) && fault_->offers.ipc) return sdk::ipc_table<Broken>();
  if (is_asked(PLIANT_STREAM_MEMORY) && fault_->offers.stream_memory) return sdk::stream_memory_table<Broken>();
  if (is_asked(PLIANT_OPTIMIZER) && fault_->offers.optimizer) return sdk::optimizer_table<Broken>();
  return nullptr;
}

}  // namespace
}  // namespace pliant::broken

extern "C" PLIANT_PLUGIN_EXPORT const pliant_plugin* pliant_plugin_entry_v1(void) {
  using namespace pliant;  // NOLINT(google-build-using-namespace)
  return sdk::detail::record<broken::Broken, broken::Adapter::Instance>(
      PLIANT_KIND_ACCELERATOR, &broken::slots(), "broken", "0.0.1", "Broken on purpose, to test the kit");
}
