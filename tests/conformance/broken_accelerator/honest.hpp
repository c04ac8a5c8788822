// Honest: the host accelerator's device with nothing wrong. The faults of this folder each break one promise of it, to
// see that the kit notices. TEST ONLY: never installed, never in a plugin folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "common/cpu_device/device.hpp"
#include "pliant/sdk/calls.hpp"

namespace pliant::broken {

using sdk::DType;
using sdk::Elements;
using sdk::Failure;
using sdk::Memory;
using sdk::ReduceOp;

inline constexpr uint64_t kPage = 4096;

/// What the kit sees of a fault beside what all of them have. It runs other checks where it sees more.
struct Offers {
  bool ipc = false;            ///< the extension pliant.ipc/0
  bool stream_memory = false;  ///< the extension pliant.stream_memory/0
  bool optimizer = false;      ///< the extension pliant.optimizer/0
  bool comm_query = false;     ///< and these slots of the collectives
  bool comm_shrink = false;
  bool comm_grow = false;
  bool any_pieces = false;  ///< gather_pieces takes every table, and does nothing with a wrong one
};

/// Calls are those of Device; a fault overrides what it breaks.
class Honest : public accelerator::Device {
 public:
  explicit Honest(const Offers& offered = {}) : offers(offered) {
    configure({"broken on purpose", 0, 256 * 1024, nullptr});
  }
  virtual ~Honest() = default;
  Honest(const Honest&) = delete;
  Honest& operator=(const Honest&) = delete;

  const Offers offers;
  std::string way;  ///< of those that the fault has; "" when it has but one

  virtual int32_t device_count() { return Device::device_count(); }
  virtual sdk::DeviceProperties device_properties(int32_t device) { return Device::device_properties(device); }
  virtual void* alloc(int32_t device, Memory memory, uint64_t bytes) { return Device::alloc(device, memory, bytes); }
  virtual void free(int32_t device, Memory memory, void* pointer) { Device::free(device, memory, pointer); }
  virtual sdk::MemoryInfo memory_info(int32_t device) { return Device::memory_info(device); }
  virtual std::optional<sdk::PointerInfo> pointer_info(const void* pointer) { return Device::pointer_info(pointer); }

  virtual std::unique_ptr<Stream> make_stream(int32_t device, sdk::StreamUse use) {
    return Device::make_stream(device, use);
  }
  virtual std::unique_ptr<Event> make_event(int32_t device, bool timing) { return Device::make_event(device, timing); }
  /// Each ends what it gets, which is never NULL.
  virtual void destroy(std::unique_ptr<Stream>) {}
  virtual void destroy(std::unique_ptr<Event>) {}
  virtual void destroy(std::unique_ptr<Comm>) {}
  virtual void synchronize(Stream& stream) { Device::synchronize(stream); }
  virtual void synchronize(Event& event) { Device::synchronize(event); }
  virtual void record(Event& event, Stream& stream) { Device::record(event, stream); }
  virtual bool query(Event& event) { return Device::query(event); }
  virtual bool query(Stream& stream) { return Device::query(stream); }
  virtual double elapsed(Event& begin, Event& end) { return Device::elapsed(begin, end); }
  virtual void wait(Stream& stream, Event& event) { Device::wait(stream, event); }

  virtual void copy(void* to, const void* from, uint64_t bytes, Stream& stream) {
    Device::copy(to, from, bytes, stream);
  }
  virtual void copy(std::span<const pliant_copy> copies, Stream& stream) { Device::copy(copies, stream); }
  virtual void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) { Device::fill(to, byte, bytes, stream); }
  virtual void reduce(void* to, std::span<const void* const> from, Elements elements, ReduceOp op, double scale,
                      Stream& stream) {
    Device::reduce(to, from, elements, op, scale, stream);
  }
  virtual void cast(void* to, DType to_type, const void* from, Elements elements, Stream& stream) {
    Device::cast(to, to_type, from, elements, stream);
  }
  virtual void digest_blocks(uint64_t* to, const void* from, uint64_t blocks, Stream& stream) {
    Device::digest_blocks(to, from, blocks, stream);
  }
  virtual void adamw(const pliant_adamw_update& update, const sdk::AdamWArrays& arrays, Stream& stream) {
    Device::adamw(update, arrays, stream);
  }
  virtual void squared_norms(double* to, const float* from, uint64_t count, Stream& stream) {
    Device::squared_norms(to, from, count, stream);
  }
  virtual void call(void (*function)(void*), void* context, Stream& stream) { Device::call(function, context, stream); }

  virtual pliant_ipc_handle export_memory(int32_t device, const void* pointer) {
    return Device::export_memory(device, pointer);
  }
  virtual void* import_memory(int32_t device, const pliant_ipc_handle& handle) {
    return Device::import_memory(device, handle);
  }
  virtual void release_memory(int32_t device, void* pointer) { Device::release_memory(device, pointer); }
  virtual std::unique_ptr<Event> import_event(int32_t device, const pliant_ipc_handle& handle) {
    return Device::import_event(device, handle);
  }

  virtual pliant_comm_id make_comm_id(int32_t world_size) { return Device::make_comm_id(world_size); }
  virtual void wait_ready(Comm& comm, int32_t timeout_ms) { Device::wait_ready(comm, timeout_ms); }
  virtual void abort(Comm& comm) { Device::abort(comm); }
  virtual void all_reduce(Comm& comm, const void* send, void* recv, Elements elements, ReduceOp op, Stream& stream) {
    Device::all_reduce(comm, send, recv, elements, op, stream);
  }
  virtual void all_gather(Comm& comm, const void* send, void* recv, Elements elements, Stream& stream) {
    Device::all_gather(comm, send, recv, elements, stream);
  }
  virtual void reduce_scatter(Comm& comm, const void* send, void* recv, Elements elements, ReduceOp op,
                              Stream& stream) {
    Device::reduce_scatter(comm, send, recv, elements, op, stream);
  }
  virtual void broadcast(Comm& comm, void* buffer, Elements elements, int32_t root, Stream& stream) {
    Device::broadcast(comm, buffer, elements, root, stream);
  }
  virtual void barrier(Comm& comm, Stream& stream) { Device::barrier(comm, stream); }
  virtual void all_gather_v(Comm& comm, const void* send, void* recv, std::span<const uint64_t> counts, DType dtype,
                            Stream& stream) {
    Device::all_gather_v(comm, send, recv, counts, dtype, stream);
  }
  virtual void gather_pieces(Comm& comm, const void* send, void* recv, sdk::PieceTable pieces, DType dtype,
                             Stream& stream) {
    Device::gather_pieces(comm, send, recv, std::move(pieces), dtype, stream);
  }
  virtual void scatter_pieces(Comm& comm, const void* send, void* recv, sdk::PieceTable pieces,
                              std::span<const uint8_t> adds, DType dtype, Stream& stream) {
    Device::scatter_pieces(comm, send, recv, std::move(pieces), adds, dtype, stream);
  }
  virtual void recv(Comm& comm, void* buffer, Elements elements, int32_t peer, Stream& stream) {
    Device::recv(comm, buffer, elements, peer, stream);
  }
  virtual void begin_group(Comm& comm) { Device::begin_group(comm); }
  virtual void register_window(Comm& comm, void* pointer, uint64_t bytes, Stream& stream) {
    Device::register_window(comm, pointer, bytes, stream);
  }

  // Optional calls of the accelerator itself, which a fault that breaks none of them does not have.
  virtual void* alloc_aligned(int32_t, Memory, uint64_t, uint64_t) { throw not_offered(); }
  virtual void spend(uint64_t, Stream&) { throw not_offered(); }
  virtual void register_host(void*, uint64_t) { throw not_offered(); }
  virtual void unregister_host(void* pointer) { Device::unregister_host(pointer); }

  // What Device has not: called only where `offers` says that it is there.
  virtual void* alloc_async(int32_t, uint64_t, Stream&) { throw not_offered(); }
  virtual void free_async(int32_t, void*, Stream&) { throw not_offered(); }
  virtual void trim(int32_t, uint64_t) { throw not_offered(); }
  virtual bool query(Comm&) { throw not_offered(); }
  virtual std::unique_ptr<Comm> shrink(Comm&, std::span<const int32_t>, const pliant_comm_id&) { throw not_offered(); }
  virtual std::unique_ptr<Comm> grow(int32_t, Comm*, const pliant_comm_id&, int32_t, int32_t) { throw not_offered(); }

  // The slots themselves, for what the SDK would not let a class do. `sdk` has the honest ones. None may throw.
  using Slots = sdk::Calls<pliant_accelerator>;
  virtual int32_t device_count_slot(const Slots& sdk, int32_t* count, pliant_error* error) {
    return sdk->device_count(sdk.self(), count, error);
  }
  virtual int32_t device_properties_slot(const Slots& sdk, int32_t device, pliant_device_properties* out,
                                         pliant_error* error) {
    return sdk->device_properties(sdk.self(), device, out, error);
  }
  virtual int32_t alloc_slot(const Slots& sdk, int32_t device, int32_t memory, uint64_t bytes, void** out,
                             pliant_error* error) {
    return sdk->alloc(sdk.self(), device, memory, bytes, out, error);
  }
  virtual void free_slot(const Slots& sdk, int32_t device, int32_t memory, void* pointer) {
    sdk->free(sdk.self(), device, memory, pointer);
  }
  virtual int32_t stream_create_slot(const Slots& sdk, int32_t device, int32_t role, int32_t priority,
                                     pliant_stream** out, pliant_error* error) {
    return sdk->stream_create(sdk.self(), device, role, priority, out, error);
  }

 private:
  static Failure not_offered() { return {PLIANT_UNIMPLEMENTED, "this fault does not say that it has this call"}; }
};

}  // namespace pliant::broken
