// Device: one accelerator made of this machine's memory and processors, in the shape that the SDK asks for.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "common/cpu/event_handle.hpp"
#include "common/cpu/exchange_memory.hpp"
#include "common/cpu/memory.hpp"
#include "common/cpu/registered_ranges.hpp"
#include "common/cpu/stream.hpp"
#include "common/cpu_device/communicator.hpp"
#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/optimizer.hpp"

namespace pliant::accelerator {

struct DeviceSettings {
  std::string name;
  uint64_t memory_bytes = 0;  ///< 0: all memory of the machine
  uint64_t chunk_bytes = 0;
  std::shared_ptr<Faults> faults;  ///< NULL: none
  NetworkSettings network = {};    ///< set: communicators go over it
};

class Device {
 public:
  using Stream = accelerator::Stream;
  using Event = accelerator::Event;
  using Comm = Communicator;

  /// Ids that were made and not used yet; making more drops the oldest, so that they cannot pile up.
  static constexpr size_t kUnusedIds = 8;

  int32_t device_count() { return 1; }
  sdk::DeviceProperties device_properties(int32_t device);
  void* alloc(int32_t device, sdk::Memory memory, uint64_t bytes);
  void* alloc_aligned(int32_t device, sdk::Memory memory, uint64_t bytes, uint64_t alignment);
  void free(int32_t, sdk::Memory memory, void* pointer);
  sdk::MemoryInfo memory_info(int32_t) {
    check_there();
    return {memory_.left(), memory_.limit()};
  }

  std::optional<sdk::PointerInfo> pointer_info(const void* pointer) const;
  /// Copies are no faster for it.
  void register_host(void* pointer, uint64_t bytes);
  void unregister_host(void* pointer) { registered_.remove(pointer); }

  std::unique_ptr<Stream> make_stream(int32_t device, sdk::StreamUse use);
  std::unique_ptr<Event> make_event(int32_t, bool timing) {
    check_there();
    return std::make_unique<Event>(timing);
  }
  std::unique_ptr<Event> make_exported_event(int32_t) {
    check_there();
    return std::make_unique<Event>(false, SharedEvent::make(SharedEvent::kMostSlots, watch_));
  }
  void synchronize(Stream& stream) {
    stream.synchronize();
    check_there();
  }
  void synchronize(Event& event) {
    event.synchronize();
    check_there();
  }
  void record(Event& event, Stream& stream) { event.record(stream); }
  bool query(Event& event) {
    check_there();
    return event.query();
  }
  bool query(Stream& stream) {
    check_there();
    return stream.query();
  }
  double elapsed(Event& begin, Event& end) {
    check_there();
    return Event::elapsed(begin, end);
  }
  void wait(Stream& stream, Event& event) { event.make_wait(stream); }
  void copy(void* to, const void* from, uint64_t bytes, Stream& stream);
  void copy(std::span<const pliant_copy> copies, Stream& stream);
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream);
  void reduce(void* to, std::span<const void* const> from, sdk::Elements elements, sdk::ReduceOp op, double scale,
              Stream& stream);
  void cast(void* to, sdk::DType to_type, const void* from, sdk::Elements elements, Stream& stream);
  void digest_blocks(uint64_t* to, const void* from, uint64_t blocks, Stream& stream);
  void call(void (*function)(void*), void* context, Stream& stream);
  void spend(uint64_t nanoseconds, Stream& stream);
  void adamw(const pliant_adamw_update& update, const sdk::AdamWArrays& arrays, Stream& stream);
  void squared_norms(double* to, const float* from, uint64_t count, Stream& stream);

  pliant_ipc_handle export_memory(int32_t, const void* pointer) { return exchange_.export_memory(pointer); }
  void* import_memory(int32_t, const pliant_ipc_handle& handle) { return exchange_.import_memory(handle); }
  void release_memory(int32_t, void* pointer) { exchange_.release_memory(pointer); }
  pliant_ipc_handle export_event(Event& event) { return accelerator::export_event(event.shared()); }
  std::unique_ptr<Event> import_event(int32_t, const pliant_ipc_handle& handle) {
    check_there();
    return std::make_unique<Event>(false, accelerator::import_event(handle, watch_));
  }

  pliant_comm_id make_comm_id(int32_t world_size);
  std::unique_ptr<Comm> make_comm(int32_t device, const pliant_comm_id& id, int32_t rank, int32_t world_size);
  int32_t world_size(const Comm& comm) { return comm.world_size(); }
  int32_t rank(const Comm& comm) { return comm.rank(); }
  void wait_ready(Comm& comm, int32_t timeout_ms) {
    check_there();
    comm.wait_ready(timeout_ms);
  }
  void abort(Comm& comm) { comm.abort(); }
  void all_reduce(Comm& comm, const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op, Stream& stream) {
    comm.enqueue({.kind = CallKind::kAllReduce, .send = send, .recv = recv, .elements = elements, .op = op}, stream);
  }
  void all_gather(Comm& comm, const void* send, void* recv, sdk::Elements elements, Stream& stream) {
    comm.enqueue({.kind = CallKind::kAllGather, .send = send, .recv = recv, .elements = elements}, stream);
  }
  void reduce_scatter(Comm& comm, const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op,
                      Stream& stream) {
    comm.enqueue({.kind = CallKind::kReduceScatter, .send = send, .recv = recv, .elements = elements, .op = op},
                 stream);
  }
  void broadcast(Comm& comm, void* buffer, sdk::Elements elements, int32_t root, Stream& stream) {
    comm.enqueue({.kind = CallKind::kBroadcast, .recv = buffer, .elements = elements, .rank = root}, stream);
  }
  void barrier(Comm& comm, Stream& stream) { comm.enqueue({}, stream); }
  void all_gather_v(Comm& comm, const void* send, void* recv, std::span<const uint64_t> counts, sdk::DType dtype,
                    Stream& stream);
  void gather_pieces(Comm& comm, const void* send, void* recv, sdk::PieceTable pieces, sdk::DType dtype,
                     Stream& stream);
  void scatter_pieces(Comm& comm, const void* send, void* recv, sdk::PieceTable pieces, std::span<const uint8_t> adds,
                      sdk::DType dtype, Stream& stream);
  void send(Comm& comm, const void* buffer, sdk::Elements elements, int32_t peer, Stream& stream) {
    comm.enqueue({.kind = CallKind::kSend, .send = buffer, .elements = elements, .rank = peer}, stream);
  }
  void recv(Comm& comm, void* buffer, sdk::Elements elements, int32_t peer, Stream& stream) {
    comm.enqueue({.kind = CallKind::kRecv, .recv = buffer, .elements = elements, .rank = peer}, stream);
  }
  void register_window(Comm& comm, void* pointer, uint64_t bytes, Stream& stream) {
    const Call call{.kind = CallKind::kWindow,
                    .recv = pointer,
                    .elements = {bytes, sdk::DType::kU8},
                    .windows = settings_.network.own.is_set() ? nullptr : &exchange_};
    sdk::require(exchange_.holds(pointer, bytes),
                 "the window leaves its memory, or is not of PLIANT_MEMORY_WINDOW of this instance");
    comm.enqueue(call, stream);
  }
  void begin_group(Comm& comm) { comm.begin_group(); }
  void end_group(Comm& comm) { comm.end_group(); }

 protected:
  /// Before any other call.
  void configure(DeviceSettings settings);
  /// Device and pinned memory.
  [[nodiscard]] MemoryPool& memory() { return memory_; }

 private:
  /// Throws when a test double has lost the device.
  void check_there() const {
    if (settings_.faults) settings_.faults->before_call();
  }
  /// An id that no rank of this process has joined yet.
  struct UnusedId {
    uint64_t nonce;
    std::shared_ptr<UniqueFd> fd;
  };

  DeviceSettings settings_;
  MemoryPool memory_;
  ExchangeMemory exchange_{memory_};
  RegisteredRanges registered_;
  ProcessWatch watch_;
  std::atomic<uint64_t> streams_{0};
  std::mutex ids_mutex_;
  std::deque<UnusedId> unused_ids_;
};

}  // namespace pliant::accelerator
