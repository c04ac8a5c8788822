// The `level_zero` accelerator: GPUs by way of oneAPI Level Zero. Nothing is opened before the first question, and a
// machine without loader, driver or device has 0 devices.
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "event.hpp"
#include "ipc_event.hpp"
#include "ipc_memory.hpp"
#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/ipc.hpp"
#include "pliant/sdk/optimizer.hpp"
#include "runtime.hpp"
#include "stream.hpp"
#include "work.hpp"

namespace {

using namespace pliant;

/// The kernels of one device, and whether it was said why there are none.
struct DeviceKernels {
  explicit DeviceKernels(const level_zero::DeviceEntry& device) : library(device) {}
  level_zero::KernelLibrary library;
  std::array<std::once_flag, level_zero::KernelLibrary::kParts> told;
};

/// What is there once Level Zero was asked.
struct Opened {
  explicit Opened(const std::string& loader) : runtime(loader) {
    for (const auto& device : runtime.devices()) {
      const bool shared = !events.empty() && events.back()->context() == device.context;
      events.push_back(shared ? events.back() : std::make_shared<level_zero::EventPool>(device.context));
      kernels.push_back(std::make_unique<DeviceKernels>(device));
    }
  }
  level_zero::Runtime runtime;
  std::vector<std::shared_ptr<level_zero::EventPool>> events;  ///< of each device
  std::vector<std::unique_ptr<DeviceKernels>> kernels;         ///< of each device
};

ze_command_queue_priority_t priority_of(int32_t priority) {
  if (priority == PLIANT_PRIORITY_LOW) return ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW;
  if (priority == PLIANT_PRIORITY_HIGH) return ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH;
  return ZE_COMMAND_QUEUE_PRIORITY_NORMAL;
}

class LevelZeroAccelerator {
 public:
  using Stream = level_zero::Stream;
  using Event = level_zero::Event;

  std::string loader = "libze_loader.so.1";
  int64_t memory_bytes = 0;
  int64_t staging_bytes = 8 * 1024 * 1024;

  static void options(sdk::Options<LevelZeroAccelerator>& o) {
    using L = LevelZeroAccelerator;
    o.add("loader", &L::loader,
          "The loader of Level Zero: a library name for the dynamic linker, or the absolute path of a file.");
    o.add("memory_bytes", &L::memory_bytes, "Memory of each device that one process may allocate; 0 = all of it.")
        .unit("bytes")
        .at_least(0);
    o.add("staging_bytes", &L::staging_bytes,
          "Pinned memory per stream that needs it: for copies between device and pageable memory, reductions of more "
          "than 16 sources, and reductions and casts on the CPU.")
        .unit("bytes")
        .range(devices::kLeastStagingBytes, int64_t{1} << 30);
  }

  void start(const sdk::Host& host) {
    host_ = host;
    const bool bare = !loader.empty() && loader.find('/') == std::string::npos;
    sdk::require(bare || loader.rfind('/', 0) == 0,
                 "loader is '" + loader + "'; give a name without '/', such as libze_loader.so.1, or an absolute path",
                 "loader");
    memory_.set_limit(static_cast<uint64_t>(memory_bytes));
  }

  int32_t device_count() { return static_cast<int32_t>(opened().runtime.devices().size()); }
  /// For the message that there is no such device.
  std::string why_no_devices() { return opened().runtime.why_none(); }
  sdk::DeviceProperties device_properties(int32_t device) {
    const level_zero::DeviceEntry& one = entry(device);
    static_cast<void>(kernels_of(one, level_zero::KernelLibrary::Part::kSingles));  // says why there are none
    const uint32_t shared = one.has_shared_memory ? PLIANT_CAP_SHARED_MEMORY : 0;
    const uint32_t exchanged = one.has_ipc ? PLIANT_CAP_EXCHANGE_MEMORY : 0;
    return {one.name, memory_info(device).total_bytes, shared | exchanged};
  }

  void* alloc(int32_t device, sdk::Memory memory, uint64_t bytes) {
    return memory_.alloc(opened().runtime.devices(), device, memory, bytes);
  }
  void* alloc_aligned(int32_t device, sdk::Memory memory, uint64_t bytes, uint64_t alignment) {
    return memory_.alloc(opened().runtime.devices(), device, memory, bytes, alignment);
  }
  void free(int32_t, sdk::Memory, void* pointer) {
    opened();
    ipc_.retire(pointer);
    memory_.free(pointer);
  }
  sdk::MemoryInfo memory_info(int32_t device) { return memory_.info(entry(device), device); }
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

  const void* extension(const char* id) const {
    if (std::strcmp(id, PLIANT_OPTIMIZER) == 0) return sdk::optimizer_table<LevelZeroAccelerator>();
    return std::strcmp(id, PLIANT_IPC) == 0 ? sdk::ipc_table<LevelZeroAccelerator>() : nullptr;
  }
  pliant_ipc_handle export_memory(int32_t device, const void* pointer) {
    memory_.require_exchange(device, pointer);
    return ipc_.export_memory(entry(device), pointer);
  }
  void* import_memory(int32_t device, const pliant_ipc_handle& handle) {
    return ipc_.import_memory(entry(device), device, handle);
  }
  void release_memory(int32_t, void* pointer) {
    opened();
    ipc_.release_memory(pointer);
  }

  std::unique_ptr<Event> make_exported_event(int32_t device) {
    const level_zero::DeviceEntry& one = entry(device);
    if (!one.has_event_ipc) {
      throw sdk::Failure(PLIANT_UNIMPLEMENTED,
                         "the driver of this device cannot share events between processes; create the event without "
                         "PLIANT_EVENT_EXPORTED")
          .about_device(device);
    }
    return std::make_unique<Event>(false, one.context, level_zero::IpcEvent::make(one, watch_));
  }
  pliant_ipc_handle export_event(Event& event) {
    sdk::require(event.shared() != nullptr,
                 "the event was created without PLIANT_EVENT_EXPORTED; create it with that flag");
    opened();
    return event.shared()->handle();
  }
  std::unique_ptr<Event> import_event(int32_t device, const pliant_ipc_handle& handle) {
    const level_zero::DeviceEntry& one = entry(device);
    return std::make_unique<Event>(false, one.context, level_zero::IpcEvent::open(one, handle, watch_));
  }

  std::unique_ptr<Stream> make_stream(int32_t device, sdk::StreamUse use) {
    return std::make_unique<Stream>(entry(device), opened().events[static_cast<size_t>(device)],
                                    queue_for(entry(device), use), static_cast<uint64_t>(staging_bytes));
  }
  std::unique_ptr<Event> make_event(int32_t device, bool timing) {
    return std::make_unique<Event>(timing, entry(device).context);
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
    level_zero::enqueue_copies(memory_, {&one, 1}, stream);
  }
  void copy(std::span<const pliant_copy> copies, Stream& stream) {
    level_zero::enqueue_copies(memory_, copies, stream);
  }
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) {
    level_zero::enqueue_fill(memory_, to, byte, bytes, stream);
  }
  void reduce(void* to, std::span<const void* const> from, sdk::Elements elements, sdk::ReduceOp op, double scale,
              Stream& stream) {
    level_zero::enqueue_reduce(memory_, kernels(stream, elements.dtype, elements.dtype), to, from, elements, op, scale,
                               stream);
  }
  void cast(void* to, sdk::DType to_type, const void* from, sdk::Elements elements, Stream& stream) {
    if (to_type == elements.dtype) return copy(to, from, elements.bytes(), stream);
    level_zero::enqueue_cast(memory_, kernels(stream, elements.dtype, to_type), to, to_type, from, elements, stream);
  }
  void digest_blocks(uint64_t* to, const void* from, uint64_t blocks, Stream& stream) {
    auto* const own = kernels(stream, sdk::DType::kI64, sdk::DType::kI64);
    level_zero::enqueue_digest(memory_, own, to, from, blocks, stream);
  }
  void adamw(const pliant_adamw_update& update, const sdk::AdamWArrays& arrays, Stream& stream) {
    auto* const own = kernels(stream, level_zero::KernelLibrary::Part::kUpdates);
    level_zero::enqueue_adamw(memory_, own, update, arrays, stream);
  }
  void squared_norms(double* to, const float* from, uint64_t count, Stream& stream) {
    auto* const own = kernels(stream, level_zero::KernelLibrary::Part::kDoubles);
    level_zero::enqueue_norms(memory_, own, to, from, count, stream);
  }
  void call(void (*function)(void*), void* context, Stream& stream) {
    Stream::Turn(stream).on_host([=](bool) { function(context); });
  }

 private:
  Opened& opened() {
    const std::lock_guard lock(mutex_);
    if (!opened_) opened_ = std::make_unique<Opened>(loader);
    opened_->runtime.require_owner();
    return *opened_;
  }
  const level_zero::DeviceEntry& entry(int32_t device) {
    return opened().runtime.devices()[static_cast<size_t>(device)];
  }

  /// NULL where none can be launched; why is logged once.
  level_zero::KernelLibrary* kernels_of(const level_zero::DeviceEntry& device, level_zero::KernelLibrary::Part part) {
    Opened& all = opened();
    const auto index = static_cast<size_t>(&device - all.runtime.devices().data());
    DeviceKernels& kernels = *all.kernels[index];
    const std::string& why = kernels.library.why_none(part);
    if (why.empty()) return &kernels.library;
    std::call_once(kernels.told[static_cast<size_t>(part)], [&] {
      const bool doubles = part == level_zero::KernelLibrary::Part::kDoubles;
      const bool updates = part == level_zero::KernelLibrary::Part::kUpdates;
      host_.warning(
          "device " + std::to_string(index) + ": " + (updates ? "updates of AdamW in " : "reductions and casts of ") +
          (doubles ? "64-bit floats in " : "") + "device memory run on the CPU, through pinned memory: " + why);
    });
    return nullptr;
  }
  level_zero::KernelLibrary* kernels(const Stream& stream, level_zero::KernelLibrary::Part part) {
    return stream.computes() ? kernels_of(stream.device(), part) : nullptr;
  }
  level_zero::KernelLibrary* kernels(const Stream& stream, sdk::DType one, sdk::DType other) {
    return kernels(stream, level_zero::part_of(one, other));
  }

  /// Streams that only move data get engines that only copy, where there are some; streams of one use share them out.
  /// A scatter's adds, so it computes.
  level_zero::QueueChoice queue_for(const level_zero::DeviceEntry& device, sdk::StreamUse use) {
    const auto role = static_cast<size_t>(use.role);
    const bool computes = use.role == sdk::StreamRole::kCompute || use.role == sdk::StreamRole::kScatter;
    const bool copies = !computes && !device.copy.empty();
    const level_zero::QueueGroup& group = copies ? device.copy[(role - 1) % device.copy.size()] : device.compute;
    return {group.ordinal, streams_[copies ? role : 0]++ % group.queues, priority_of(use.priority), !copies};
  }

  sdk::Host host_;
  std::mutex mutex_;
  std::unique_ptr<Opened> opened_;
  level_zero::UsmMemory memory_;
  level_zero::IpcMemory ipc_;
  accelerator::ProcessWatch watch_;
  std::array<std::atomic<uint32_t>, 5> streams_{};  // made so far, of each role
};

}  // namespace

PLIANT_ACCELERATOR(LevelZeroAccelerator, "level_zero", "0.1.0", "GPUs with oneAPI Level Zero")
