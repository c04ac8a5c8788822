// The `cuda` accelerator: NVIDIA's GPUs. Nothing is opened before the first question, and a machine without runtime,
// driver or device has 0 devices.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "communicator.hpp"
#include "event.hpp"
#include "ipc_event.hpp"
#include "ipc_memory.hpp"
#include "kernel_library.hpp"
#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/collectives.hpp"
#include "pliant/sdk/ipc.hpp"
#include "pliant/sdk/optimizer.hpp"
#include "pliant/sdk/stream_memory.hpp"
#include "runtime.hpp"
#include "stream.hpp"
#include "work.hpp"

namespace {

using namespace pliant;

/// What is there once CUDA was asked.
struct Opened {
  explicit Opened(const std::string& file) : runtime(file) {
    for (const auto& device : runtime.devices()) events.push_back(std::make_shared<cuda::EventPool>(device));
  }
  cuda::Runtime runtime;
  std::vector<std::shared_ptr<cuda::EventPool>> events;  ///< of each device
  cuda::KernelLibrary kernels;
};

/// As torchrun and `pliant run` tell workers. A program with more rights than its user believes no variable of theirs.
bool are_on_several_machines() {
  const char* all = ::secure_getenv("WORLD_SIZE");
  const char* here = ::secure_getenv("LOCAL_WORLD_SIZE");
  return all != nullptr && here != nullptr && std::strtol(all, nullptr, 10) > std::strtol(here, nullptr, 10);
}

void require_name(const char* option, const std::string& file, const char* example) {
  const bool bare = file.find('/') == std::string::npos;
  sdk::require(
      bare || file.rfind('/', 0) == 0,
      std::string(option) + " is '" + file + "'; give a name without '/', such as " + example + ", or an absolute path",
      option);
}

class CudaAccelerator {
 public:
  using Stream = cuda::Stream;
  using Event = cuda::Event;
  using Comm = cuda::Communicator;

  std::string runtime;
  std::string collectives = "auto";
  std::string nccl = "libnccl.so.2";
  int64_t memory_bytes = 0;
  int64_t staging_bytes = 8 * 1024 * 1024;

  static void options(sdk::Options<CudaAccelerator>& o) {
    using C = CudaAccelerator;
    o.add("runtime", &C::runtime,
          "The CUDA runtime: a library name for the dynamic linker, or the absolute path of a file. Empty = "
          "libcudart.so.13, or libcudart.so.12 if that one is missing or the driver is too old for it.");
    o.add("collectives", &C::collectives,
          "auto = NCCL if each rank has its own device, generic collectives if two ranks share a device or NCCL is "
          "missing or too old; the ranks of a machine agree on it when a communicator is created, and with WORLD_SIZE "
          "above LOCAL_WORLD_SIZE it is nccl. nccl = NCCL; creating a communicator fails if it is missing or too old. "
          "generic = between processes of one machine, from device to device if possible, else through pinned memory.")
        .choices({"auto", "nccl", "generic"});
    o.add("nccl", &C::nccl, "NCCL: a library name for the dynamic linker, or the absolute path of a file.");
    o.add("memory_bytes", &C::memory_bytes, "Memory of each device that one process may allocate; 0 = all of it.")
        .unit("bytes")
        .at_least(0);
    o.add("staging_bytes", &C::staging_bytes,
          "Pinned memory per stream that needs it: for reductions and casts that mix device memory and plain memory, "
          "and for all of them if kernels cannot be launched.")
        .unit("bytes")
        .range(devices::kLeastStagingBytes, int64_t{1} << 30);
  }

  void start(const sdk::Host& host) {
    host_ = host;
    require_name("runtime", runtime, "libcudart.so.13");
    sdk::require(!nccl.empty(), "nccl is empty; give a name such as libnccl.so.2, or an absolute path", "nccl");
    require_name("nccl", nccl, "libnccl.so.2");
    memory_.set_limit(static_cast<uint64_t>(memory_bytes));
  }

  const void* extension(const char* id) {
    if (std::strcmp(id, PLIANT_STREAM_MEMORY) == 0) return sdk::stream_memory_table<CudaAccelerator>();
    if (std::strcmp(id, PLIANT_OPTIMIZER) == 0) return sdk::optimizer_table<CudaAccelerator>();
    if (std::strcmp(id, PLIANT_IPC) == 0 && has_ipc()) return sdk::ipc_table<CudaAccelerator>();
    // Those who ask for NCCL are told by the first call that it is missing.
    if (std::strcmp(id, PLIANT_COLLECTIVES) == 0 && (has_nccl() || wants_nccl())) return &offered_;
    return nullptr;
  }

  int32_t device_count() { return static_cast<int32_t>(opened().runtime.devices().size()); }
  /// For the message that there is no such device.
  std::string why_no_devices() { return opened().runtime.why_none(); }
  sdk::DeviceProperties device_properties(int32_t device) {
    const cuda::DeviceEntry& one = *entry(device);
    const uint64_t most = memory_bytes == 0 ? one.memory_bytes
                                            : std::min<uint64_t>(one.memory_bytes, static_cast<uint64_t>(memory_bytes));
    const uint32_t shared = one.shares_memory ? PLIANT_CAP_SHARED_MEMORY : 0;
    const uint32_t exchanged = one.has_ipc ? PLIANT_CAP_EXCHANGE_MEMORY : 0;
    const uint32_t windows = has_nccl() && nccl_.window_register != nullptr ? PLIANT_CAP_WINDOW_MEMORY : 0;
    return {one.name, most, shared | exchanged | windows};
  }

  void* alloc(int32_t device, sdk::Memory memory, uint64_t bytes) {
    return memory_.alloc(entry(device), memory, bytes);
  }
  void* alloc_aligned(int32_t device, sdk::Memory memory, uint64_t bytes, uint64_t alignment) {
    return memory_.alloc(entry(device), memory, bytes, alignment);
  }
  void free(int32_t, sdk::Memory, void* pointer) {
    opened();
    ipc_.retire(pointer);
    memory_.free(pointer);
  }
  sdk::MemoryInfo memory_info(int32_t device) { return memory_.info(*entry(device)); }
  std::optional<sdk::PointerInfo> pointer_info(const void* pointer) {
    return memory_.pointer_info(opened().runtime.devices(), pointer);
  }

  void register_host(void* pointer, uint64_t bytes) {
    memory_.register_host(opened().runtime.devices(), pointer, bytes);
  }
  void unregister_host(void* pointer) {
    opened();
    memory_.unregister_host(pointer);
  }

  std::unique_ptr<Stream> make_stream(int32_t device, sdk::StreamUse use) {
    const cuda::DevicePtr& one = entry(device);
    const int priority = use.priority == PLIANT_PRIORITY_HIGH  ? one->greatest_priority
                         : use.priority == PLIANT_PRIORITY_LOW ? one->least_priority
                                                               : (one->least_priority + one->greatest_priority) / 2;
    return std::make_unique<Stream>(one, opened().events[static_cast<size_t>(device)], priority,
                                    static_cast<uint64_t>(staging_bytes));
  }
  std::unique_ptr<Event> make_event(int32_t device, bool timing) {
    return std::make_unique<Event>(timing, entry(device));
  }
  std::unique_ptr<Event> make_exported_event(int32_t device) {
    const cuda::DevicePtr& one = entry(device);
    if (!one->has_ipc) {
      throw sdk::Failure(PLIANT_UNIMPLEMENTED, "events of device '" + one->name +
                                                   "' do not pass between processes; create the event without "
                                                   "PLIANT_EVENT_EXPORTED")
          .about_device(device);
    }
    return std::make_unique<Event>(std::make_shared<cuda::IpcEvent>(one, watch_), one);
  }
  void synchronize(Stream& stream) { stream.synchronize(); }
  void synchronize(Event& event) { event.synchronize(); }
  void record(Event& event, Stream& stream) { event.record(stream); }
  bool query(Event& event) { return event.query(); }
  bool query(Stream& stream) { return stream.query(); }
  double elapsed(Event& begin, Event& end) { return Event::elapsed(begin, end); }
  void wait(Stream& stream, Event& event) { event.make_wait(stream); }

  void copy(void* to, const void* from, uint64_t bytes, Stream& stream) {
    const pliant_copy one{to, from, bytes};
    cuda::enqueue_copies(memory_, {&one, 1}, stream);
  }
  void copy(std::span<const pliant_copy> copies, Stream& stream) { cuda::enqueue_copies(memory_, copies, stream); }
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) {
    cuda::enqueue_fill(memory_, to, byte, bytes, stream);
  }
  void reduce(void* to, std::span<const void* const> from, sdk::Elements elements, sdk::ReduceOp op, double scale,
              Stream& stream) {
    cuda::enqueue_reduce(memory_, kernels(stream), to, from, elements, op, scale, stream);
  }
  void cast(void* to, sdk::DType to_type, const void* from, sdk::Elements elements, Stream& stream) {
    // No conversion: a copy, as far as the kernels are concerned.
    if (to_type == elements.dtype) return copy(to, from, elements.bytes(), stream);
    cuda::enqueue_cast(memory_, kernels(stream), to, to_type, from, elements, stream);
  }
  void digest_blocks(uint64_t* to, const void* from, uint64_t blocks, Stream& stream) {
    cuda::enqueue_digest(memory_, kernels(stream), to, from, blocks, stream);
  }
  void adamw(const pliant_adamw_update& update, const sdk::AdamWArrays& arrays, Stream& stream) {
    cuda::enqueue_adamw(memory_, kernels(stream), update, arrays, stream);
  }
  void squared_norms(double* to, const float* from, uint64_t count, Stream& stream) {
    cuda::enqueue_norms(memory_, kernels(stream), to, from, count, stream);
  }
  void call(void (*function)(void*), void* context, Stream& stream) {
    Stream::Turn(stream).on_host([=](bool) { function(context); });
  }

  void* alloc_async(int32_t device, uint64_t bytes, Stream& stream) {
    return memory_.alloc_async(entry(device), bytes, stream);
  }
  void free_async(int32_t, void* pointer, Stream& stream) { memory_.free_async(pointer, stream); }
  void trim(int32_t device, uint64_t keep_bytes) { memory_.trim(entry(device), keep_bytes); }

  pliant_ipc_handle export_memory(int32_t device, const void* pointer) {
    const cuda::DevicePtr& one = entry(device);
    sdk::require(memory_.is_exchange(*one, pointer),
                 "the memory to export is not the beginning of an allocation of PLIANT_MEMORY_EXCHANGE of this device "
                 "and instance; export the pointer that alloc gave");
    return ipc_.export_memory(*one, const_cast<void*>(pointer));
  }
  void* import_memory(int32_t device, const pliant_ipc_handle& handle) {
    return ipc_.import_memory(entry(device), handle);
  }
  void release_memory(int32_t device, void* pointer) {
    opened();
    ipc_.release_memory(device, pointer);
  }
  pliant_ipc_handle export_event(Event& event) {
    sdk::require(event.shared() != nullptr,
                 "the event was created without PLIANT_EVENT_EXPORTED, so it does not pass between processes");
    return event.shared()->handle();
  }
  std::unique_ptr<Event> import_event(int32_t device, const pliant_ipc_handle& handle) {
    const cuda::DevicePtr& one = entry(device);
    return std::make_unique<Event>(std::make_shared<cuda::IpcEvent>(one, handle, watch_), one);
  }

  pliant_comm_id make_comm_id(int32_t) {
    opened();
    require_nccl();
    cuda::NcclId made{};
    if (const cuda::NcclResult result = nccl_.unique_id(&made); result != cuda::kNcclSuccess) {
      throw sdk::Failure(PLIANT_INTERNAL, std::string("ncclGetUniqueId: ") + nccl_.error_string(result) +
                                              "; set NCCL_DEBUG=WARN to see more");
    }
    pliant_comm_id id{};
    static_assert(sizeof(id.bytes) == sizeof(made.bytes));
    std::memcpy(id.bytes, made.bytes, sizeof(id.bytes));
    return id;
  }
  std::unique_ptr<Comm> make_comm(int32_t device, const pliant_comm_id& id, int32_t rank, int32_t world_size) {
    require_nccl();
    return std::make_unique<Comm>(nccl_, entry(device), watch_, id, rank, world_size);
  }
  std::unique_ptr<Comm> shrink(Comm& old, std::span<const int32_t> without, const pliant_comm_id&) {
    return std::make_unique<Comm>(old, without);
  }
  std::unique_ptr<Comm> grow(int32_t device, Comm* old, const pliant_comm_id& id, int32_t rank, int32_t world_size) {
    return std::make_unique<Comm>(nccl_, entry(device), watch_, old, id, rank, world_size);
  }
  pliant_comm_id make_grow_id(Comm& comm, int32_t) { return comm.make_grow_id(); }
  uint64_t device_key(int32_t device) { return entry(device)->bus_address; }
  int32_t world_size(const Comm& comm) { return comm.world_size(); }
  int32_t rank(const Comm& comm) { return comm.rank(); }
  void wait_ready(Comm& comm, int32_t timeout_ms) { comm.wait_ready(timeout_ms); }
  void abort(Comm& comm) { comm.abort(); }
  bool query(Comm& comm) { return comm.query(); }
  void all_reduce(Comm& comm, const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op, Stream& stream) {
    reachable(stream, send, elements.bytes());
    reachable(stream, recv, elements.bytes());
    comm.all_reduce(send, recv, elements, op, stream);
  }
  void all_gather(Comm& comm, const void* send, void* recv, sdk::Elements elements, Stream& stream) {
    reachable(stream, send, elements.bytes());
    reachable(stream, recv, elements.bytes() * static_cast<uint64_t>(comm.world_size()));
    comm.all_gather(send, recv, elements, stream);
  }
  void reduce_scatter(Comm& comm, const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op,
                      Stream& stream) {
    reachable(stream, send, elements.bytes() * static_cast<uint64_t>(comm.world_size()));
    reachable(stream, recv, elements.bytes());
    comm.reduce_scatter(send, recv, elements, op, stream);
  }
  void broadcast(Comm& comm, void* buffer, sdk::Elements elements, int32_t root, Stream& stream) {
    reachable(stream, buffer, elements.bytes());
    comm.broadcast(buffer, elements, root, stream);
  }
  void barrier(Comm& comm, Stream& stream) { comm.barrier(stream); }
  void all_gather_v(Comm& comm, const void* send, void* recv, std::span<const uint64_t> counts, sdk::DType dtype,
                    Stream& stream) {
    const auto bytes = [&](uint64_t count) { return sdk::Elements{count, dtype}.bytes(); };
    uint64_t all = 0;
    for (const uint64_t count : counts) all += bytes(count);
    reachable(stream, send, bytes(counts[static_cast<size_t>(comm.rank())]));
    reachable(stream, recv, all);
    comm.all_gather_v(send, recv, counts, dtype, stream);
  }
  void gather_pieces(Comm& comm, const void* send, void* recv, sdk::PieceTable pieces, sdk::DType dtype,
                     Stream& stream) {
    const auto bytes = [&](uint64_t count) { return sdk::Elements{count, dtype}.bytes(); };
    if (send != nullptr) reachable(stream, send, bytes(pieces.owned(comm.rank())));
    reachable(stream, recv, bytes(pieces.end()));
    comm.gather_pieces(send, recv, std::move(pieces), dtype, stream);
  }
  void scatter_pieces(Comm& comm, const void* send, void* recv, sdk::PieceTable pieces, std::span<const uint8_t> adds,
                      sdk::DType dtype, Stream& stream) {
    const auto bytes = [&](uint64_t count) { return sdk::Elements{count, dtype}.bytes(); };
    if (send != nullptr) reachable(stream, send, bytes(pieces.end()));
    reachable(stream, recv, bytes(pieces.owned(comm.rank())) * static_cast<uint64_t>(comm.world_size() - 1));
    comm.scatter_pieces(send, recv, std::move(pieces), adds, dtype, stream);
  }
  void send(Comm& comm, const void* buffer, sdk::Elements elements, int32_t peer, Stream& stream) {
    reachable(stream, buffer, elements.bytes());
    comm.send(buffer, elements, peer, stream);
  }
  void recv(Comm& comm, void* buffer, sdk::Elements elements, int32_t peer, Stream& stream) {
    reachable(stream, buffer, elements.bytes());
    comm.recv(buffer, elements, peer, stream);
  }
  void register_window(Comm& comm, void* pointer, uint64_t bytes, Stream& stream) {
    sdk::require(memory_.is_window(stream.device(), pointer, bytes),
                 "the window leaves its memory, or is not of PLIANT_MEMORY_WINDOW of this device and instance");
    comm.register_window(
        pointer, bytes,
        [this] {
          std::call_once(no_windows_told_, [this] {
            host_.warning(
                "NCCL creates no windows between these devices: collectives are staged as without windows; set "
                "NCCL_DEBUG=INFO to see why");
          });
        },
        stream);
  }
  void begin_group(Comm& comm) { comm.begin_group(); }
  void end_group(Comm& comm) { comm.end_group(); }

 private:
  Opened& opened() {
    const std::lock_guard lock(mutex_);
    if (!opened_) opened_ = std::make_unique<Opened>(runtime);
    opened_->runtime.require_owner();
    return *opened_;
  }
  const cuda::DevicePtr& entry(int32_t device) { return opened().runtime.devices()[static_cast<size_t>(device)]; }

  /// NULL where none can be launched; why is logged once.
  cuda::KernelLibrary* kernels(const Stream& stream) {
    cuda::KernelLibrary& library = opened().kernels;
    const std::string& why = library.why_none(entry(stream.device().index));
    if (why.empty()) return &library;
    std::call_once(told_, [&] {
      host_.warning("reductions and casts of device memory run on the CPU, through pinned memory: " + why);
    });
    return nullptr;
  }

  /// Some device has memory and events for other processes.
  bool has_ipc() {
    const auto& devices = opened().runtime.devices();
    return std::any_of(devices.begin(), devices.end(), [](const cuda::DevicePtr& one) { return one->has_ipc; });
  }
  /// Why there is no NCCL is logged once.
  bool has_nccl() {
    if (collectives == "generic" || device_count() == 0) return false;
    std::call_once(nccl_asked_, [&] {
      why_no_nccl_ = nccl_.open(nccl);
      offered_ = *sdk::collectives_table<CudaAccelerator>();
      if (nccl_.shrink == nullptr) offered_.comm_shrink = nullptr;
      if (nccl_.grow == nullptr) {
        offered_.comm_grow = nullptr;
        offered_.comm_grow_id = nullptr;
      }
      if (nccl_.window_register == nullptr) offered_.register_window = nullptr;
      memory_.set_windows(nccl_);
      if (collectives == "nccl" || are_on_several_machines()) offered_.device_key = nullptr;
      if (!why_no_nccl_.empty() && collectives == "auto")
        host_.warning("generic collectives instead of NCCL's: " + why_no_nccl_);
    });
    return why_no_nccl_.empty();
  }
  bool wants_nccl() { return collectives == "nccl" && device_count() != 0; }
  void require_nccl() {
    if (has_nccl()) return;
    throw sdk::Failure(PLIANT_FAILED_PRECONDITION, "collectives = \"nccl\", and " + why_no_nccl_ +
                                                       "; collectives = \"auto\" takes the generic ones instead");
  }
  void reachable(const Stream& stream, const void* pointer, uint64_t bytes) const {
    if (bytes == 0 || memory_.reach_of(stream.device(), pointer, bytes, "the buffer of a collective").device) return;
    throw sdk::Failure(PLIANT_INVALID_ARGUMENT,
                       "the buffer of a collective is plain memory, which NCCL cannot use; allocate "
                       "PLIANT_MEMORY_DEVICE or PLIANT_MEMORY_PINNED, or set collectives = \"generic\"");
  }

  sdk::Host host_;
  std::once_flag nccl_asked_;
  std::string why_no_nccl_;
  cuda::NcclApi nccl_;
  pliant_collectives offered_{};  // what this NCCL can do
  std::mutex mutex_;
  std::unique_ptr<Opened> opened_;
  cuda::CudaMemory memory_;
  cuda::IpcMemory ipc_;
  accelerator::ProcessWatch watch_;
  std::once_flag told_;
  std::once_flag no_windows_told_;
};

}  // namespace

PLIANT_ACCELERATOR(CudaAccelerator, "cuda", "0.1.0", "NVIDIA GPUs with CUDA")
