// Write an accelerator as a class with types Stream and Event and the calls named in AcceleratorAdapter, then
// PLIANT_ACCELERATOR. The SDK owns the handles and checks every argument that can be checked before the class sees it.
//
//   class Toy {
//    public:
//     using Stream = ...; using Event = ...;                     // destroyed by their destructors
//     int32_t device_count();
//     std::string why_no_devices();                              // may be left out: told when there are none
//     void digest_blocks(uint64_t* to, const void* from, uint64_t blocks, Stream&);  // may be left out; see the slot
//     std::optional<PointerInfo> pointer_info(const void* pointer);  // may be left out; empty: memory it does not know
//     void spend(uint64_t nanoseconds, Stream&);                 // may be left out; see the slot spend_async
//     void register_host(void* pointer, uint64_t bytes);  // may be left out, and with it:
//     void unregister_host(void* pointer);                // also of pointers that were not registered; throws nothing
//     DeviceProperties device_properties(int32_t device);
//     void* alloc(int32_t device, Memory memory, uint64_t bytes);
//     void* alloc_aligned(int32_t device, Memory memory, uint64_t bytes, uint64_t alignment);  // may be left out
//     void free(int32_t device, Memory memory, void* pointer);
//     MemoryInfo memory_info(int32_t device);
//     std::unique_ptr<Stream> make_stream(int32_t device, StreamUse);  // ~Stream waits for enqueued work
//     std::unique_ptr<Event> make_event(int32_t device, bool timing);
//     std::unique_ptr<Event> make_exported_event(int32_t device);  // may be left out, see ipc.hpp
//     void synchronize(Stream&);      void synchronize(Event&);  // throw what enqueued work threw
//     void record(Event&, Stream&);   bool query(Event&);   bool query(Stream&);   void wait(Stream&, Event&);
//     double elapsed(Event& begin, Event& end);                  // seconds
//     void copy(void* to, const void* from, uint64_t bytes, Stream&);
//     void copy(std::span<const pliant_copy>, Stream&);
//     void fill(void* to, uint8_t byte, uint64_t bytes, Stream&);
//     void reduce(void* to, std::span<const void* const> from, Elements, ReduceOp, double scale, Stream&);
//     void cast(void* to, DType, const void* from, Elements, Stream&);
//     void call(void (*function)(void*), void* context, Stream&);
//   };
// For collectives see collectives.hpp, for memory and events between processes ipc.hpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "pliant/abi/accelerator.h"
#include "pliant/sdk/block_digest.hpp"
#include "pliant/sdk/plugin.hpp"

namespace pliant::sdk {

enum class Memory : int32_t {
  kDevice = PLIANT_MEMORY_DEVICE,
  kPinned = PLIANT_MEMORY_PINNED,
  kShared = PLIANT_MEMORY_SHARED,
  kExchange = PLIANT_MEMORY_EXCHANGE,
  kWindow = PLIANT_MEMORY_WINDOW
};
enum class DType : int32_t {
  kF32 = PLIANT_F32,
  kF64 = PLIANT_F64,
  kI32 = PLIANT_I32,
  kI64 = PLIANT_I64,
  kU8 = PLIANT_U8,
  kF16 = PLIANT_F16,
  kBF16 = PLIANT_BF16
};
enum class ReduceOp : int32_t { kSum = PLIANT_SUM, kMin = PLIANT_MIN, kMax = PLIANT_MAX };

/// Bytes of one element.
constexpr uint64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kU8:
      return 1;
    case DType::kF16:
    case DType::kBF16:
      return 2;
  }
  return 0;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kU8:
      return "u8";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
  }
  return "?";
}

constexpr bool is_integer(DType dtype) {
  return dtype == DType::kI32 || dtype == DType::kI64 || dtype == DType::kU8;
}

constexpr const char* name_of(ReduceOp op) {
  return op == ReduceOp::kSum ? "sum" : op == ReduceOp::kMin ? "min" : "max";
}

/// `count` elements of one type.
struct Elements {
  uint64_t count = 0;
  DType dtype = DType::kU8;
  [[nodiscard]] uint64_t bytes() const { return count * size_of(dtype); }
};

enum class StreamRole : int32_t {
  kCompute = PLIANT_STREAM_COMPUTE,
  kGather = PLIANT_STREAM_GATHER,
  kScatter = PLIANT_STREAM_SCATTER,
  kToDevice = PLIANT_STREAM_TO_DEVICE,
  kToHost = PLIANT_STREAM_TO_HOST
};
struct StreamUse {
  StreamRole role = StreamRole::kCompute;
  int32_t priority = PLIANT_PRIORITY_NORMAL;  ///< PLIANT_PRIORITY_*
};

/// What alloc gives at least, and what alloc_aligned may be asked for at most.
inline constexpr uint64_t kLeastAlignment = 64;
inline constexpr uint64_t kMostAlignment = 4096;

/// That spend_async may be asked for at most.
inline constexpr uint64_t kMostSpentNs = 1'000'000'000'000;

struct MemoryInfo {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

/// What memory a pointer leads to.
struct PointerInfo {
  Memory memory = Memory::kDevice;
  int32_t device = -1;         ///< whose it is; -1: of no device more than of another
  const void* base = nullptr;  ///< of its allocation; NULL where that cannot be told
  uint64_t bytes = 0;          ///< of the allocation; 0 where base is NULL
};

struct DeviceProperties {
  std::string name;
  uint64_t memory_bytes = 0;
  uint32_t capabilities = 0;  ///< PLIANT_CAP_*
};

namespace detail {

/// Checks that every accelerator needs. All throw PLIANT_INVALID_ARGUMENT.
namespace check {

inline Memory memory(int32_t value) {
  require(value >= PLIANT_MEMORY_DEVICE && value <= PLIANT_MEMORY_WINDOW, [&] {
    return "memory kind " + std::to_string(value) +
           " is none of PLIANT_MEMORY_DEVICE (1), _PINNED (2), _SHARED (3), _EXCHANGE (4), _WINDOW (5)";
  });
  return static_cast<Memory>(value);
}

/// Throws PLIANT_UNIMPLEMENTED for a kind of memory that the device's capabilities leave out.
inline void memory_there(Memory memory, uint32_t capabilities) {
  if (memory == Memory::kShared && (capabilities & PLIANT_CAP_SHARED_MEMORY) == 0) {
    throw Failure(PLIANT_UNIMPLEMENTED, "this device has no PLIANT_MEMORY_SHARED; use PLIANT_MEMORY_PINNED");
  }
  if (memory == Memory::kExchange && (capabilities & PLIANT_CAP_EXCHANGE_MEMORY) == 0) {
    throw Failure(PLIANT_UNIMPLEMENTED, "this device has no PLIANT_MEMORY_EXCHANGE; use PLIANT_MEMORY_DEVICE");
  }
  if (memory == Memory::kWindow && (capabilities & PLIANT_CAP_WINDOW_MEMORY) == 0) {
    throw Failure(PLIANT_UNIMPLEMENTED, "this device has no PLIANT_MEMORY_WINDOW; use PLIANT_MEMORY_DEVICE");
  }
}

/// Of an allocation.
inline void alignment(uint64_t value) {
  require(value != 0 && (value & (value - 1)) == 0 && value <= kMostAlignment, [&] {
    return "an alignment is a power of two up to " + std::to_string(kMostAlignment) + "; got " + std::to_string(value);
  });
}

inline ReduceOp op(int32_t value) {
  require(value >= PLIANT_SUM && value <= PLIANT_MAX, [&] {
    return "reduction " + std::to_string(value) + " is none of PLIANT_SUM (1), PLIANT_MIN (2), PLIANT_MAX (3)";
  });
  return static_cast<ReduceOp>(value);
}

inline void event_flags(uint32_t flags) {
  require((flags & ~uint32_t{PLIANT_EVENT_TIMING | PLIANT_EVENT_EXPORTED}) == 0, [&] {
    return "event flags " + std::to_string(flags) +
           " have bits that are neither PLIANT_EVENT_TIMING (1) nor PLIANT_EVENT_EXPORTED (2)";
  });
  require(flags != (PLIANT_EVENT_TIMING | PLIANT_EVENT_EXPORTED),
          "an event has PLIANT_EVENT_TIMING or PLIANT_EVENT_EXPORTED, not both; its time is that of one process");
}

inline StreamUse stream_use(int32_t role, int32_t priority) {
  require(role >= PLIANT_STREAM_COMPUTE && role <= PLIANT_STREAM_TO_HOST, [&] {
    return "stream role " + std::to_string(role) + " is none of PLIANT_STREAM_COMPUTE (0) .. PLIANT_STREAM_TO_HOST (4)";
  });
  require(priority >= PLIANT_PRIORITY_LOW && priority <= PLIANT_PRIORITY_HIGH,
          [&] { return "stream priority " + std::to_string(priority) + " is outside -1 .. 1"; });
  return {static_cast<StreamRole>(role), priority};
}

/// `copies` * count elements must be addressable.
inline Elements elements(uint64_t count, int32_t dtype, uint64_t copies) {
  require(dtype >= PLIANT_F32 && dtype <= PLIANT_BF16,
          [&] { return "element type " + std::to_string(dtype) + " is none of PLIANT_F32 (1) .. PLIANT_BF16 (7)"; });
  const Elements made{count, static_cast<DType>(dtype)};
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  require(count <= kMost / (size_of(made.dtype) * copies), [&] {
    return std::to_string(count) + " elements of " + name_of(made.dtype) + " are more than memory can hold";
  });
  return made;
}

inline void buffer(const void* pointer, uint64_t bytes, const char* what) {
  require(pointer != nullptr || bytes == 0,
          [&] { return std::string(what) + " is NULL, but " + std::to_string(bytes) + " bytes are wanted"; });
}

/// Elements must lie where their type may lie.
inline void buffer(const void* pointer, const Elements& elements, const char* what) {
  buffer(pointer, elements.bytes(), what);
  require(reinterpret_cast<uintptr_t>(pointer) % size_of(elements.dtype) == 0,
          [&] { return std::string(what) + " is not aligned to its elements of " + name_of(elements.dtype); });
}

inline void apart(const void* to, uint64_t to_bytes, const void* from, uint64_t from_bytes) {
  const auto a = reinterpret_cast<uintptr_t>(to);
  const auto b = reinterpret_cast<uintptr_t>(from);
  require(a + to_bytes <= b || b + from_bytes <= a || to_bytes == 0 || from_bytes == 0, "source and target overlap");
}

inline void copy(const pliant_copy& copy) {
  buffer(copy.to, copy.bytes, "the target");
  buffer(copy.from, copy.bytes, "the source");
  apart(copy.to, copy.bytes, copy.from, copy.bytes);
}

}  // namespace check

template <class T>
struct AcceleratorAdapter {
  using Instance = Plain<T>;
  using Stream = typename T::Stream;
  using Event = typename T::Event;

  static T& device_of(void* self) { return static_cast<Instance*>(self)->plugin; }
  static Stream& open(pliant_stream* handle) {
    require(handle != nullptr, "the stream is NULL");
    return *reinterpret_cast<Stream*>(handle);
  }
  static Event& open(pliant_event* handle) {
    require(handle != nullptr, "the event is NULL");
    return *reinterpret_cast<Event*>(handle);
  }
  static void known_device(T& plugin, int32_t device) {
    const int32_t count = plugin.device_count();
    if (device >= 0 && device < count) return;
    std::string refusal = "device " + std::to_string(device) + " does not exist; devices: " + std::to_string(count);
    if constexpr (requires { plugin.why_no_devices(); }) {
      if (count == 0) {
        throw Failure(PLIANT_INVALID_ARGUMENT, refusal + ": " + plugin.why_no_devices()).about_device(device);
      }
    }
    throw Failure(PLIANT_INVALID_ARGUMENT, refusal + ", counted from 0").about_device(device);
  }

  static int32_t device_count(void* self, int32_t* count, pliant_error* error) noexcept {
    return guarded(error, [&] { *count = device_of(self).device_count(); });
  }
  static int32_t device_properties(void* self, int32_t device, pliant_device_properties* out,
                                   pliant_error* error) noexcept {
    return guarded(error, [&] {
      known_device(device_of(self), device);
      const DeviceProperties made = device_of(self).device_properties(device);
      pliant_device_properties answer{};
      answer.capabilities = made.capabilities;
      answer.memory_bytes = made.memory_bytes;
      std::memcpy(answer.name, made.name.data(), std::min(made.name.size(), sizeof(answer.name) - 1));
      fill(out, answer);
    });
  }

  /// Throws unless the device exists and has such memory.
  static Memory known_memory(T& plugin, int32_t device, int32_t memory) {
    known_device(plugin, device);
    const Memory kind = check::memory(memory);
    if (kind >= Memory::kShared) check::memory_there(kind, plugin.device_properties(device).capabilities);
    return kind;
  }
  static int32_t alloc(void* self, int32_t device, int32_t memory, uint64_t bytes, void** out,
                       pliant_error* error) noexcept {
    return guarded(error, [&] {
      *out = nullptr;
      const Memory kind = known_memory(device_of(self), device, memory);
      *out = device_of(self).alloc(device, kind, bytes);
    });
  }
  static void free(void* self, int32_t device, int32_t memory, void* pointer) noexcept {
    if (pointer == nullptr) return;
    guarded(nullptr, [&] { device_of(self).free(device, check::memory(memory), pointer); });
  }

  static int32_t memory_info(void* self, int32_t device, uint64_t* free_bytes, uint64_t* total_bytes,
                             pliant_error* error) noexcept {
    return guarded(error, [&] {
      known_device(device_of(self), device);
      const MemoryInfo info = device_of(self).memory_info(device);
      *free_bytes = info.free_bytes;
      *total_bytes = info.total_bytes;
    });
  }

  static int32_t stream_create(void* self, int32_t device, int32_t role, int32_t priority, pliant_stream** out,
                               pliant_error* error) noexcept {
    return guarded(error, [&] {
      *out = nullptr;
      known_device(device_of(self), device);
      std::unique_ptr<Stream> made = device_of(self).make_stream(device, check::stream_use(role, priority));
      *out = reinterpret_cast<pliant_stream*>(made.release());
    });
  }
  static void stream_destroy(void*, pliant_stream* handle) noexcept { delete reinterpret_cast<Stream*>(handle); }
  static int32_t stream_query(void* self, pliant_stream* stream, int32_t* done, pliant_error* error) noexcept {
    return guarded(error, [&] { *done = device_of(self).query(open(stream)) ? 1 : 0; });
  }
  static int32_t stream_synchronize(void* self, pliant_stream* stream, pliant_error* error) noexcept {
    return guarded(error, [&] { device_of(self).synchronize(open(stream)); });
  }

  static std::unique_ptr<Event> make_event(T& plugin, int32_t device, uint32_t flags) {
    if ((flags & PLIANT_EVENT_EXPORTED) == 0) return plugin.make_event(device, (flags & PLIANT_EVENT_TIMING) != 0);
    if constexpr (requires { plugin.make_exported_event(device); }) {
      return plugin.make_exported_event(device);
    } else {
      throw Failure(PLIANT_UNIMPLEMENTED,
                    "events of this accelerator do not pass between processes; create the event without "
                    "PLIANT_EVENT_EXPORTED");
    }
  }
  static int32_t event_create(void* self, int32_t device, uint32_t flags, pliant_event** out,
                              pliant_error* error) noexcept {
    return guarded(error, [&] {
      *out = nullptr;
      known_device(device_of(self), device);
      check::event_flags(flags);
      std::unique_ptr<Event> made = make_event(device_of(self), device, flags);
      *out = reinterpret_cast<pliant_event*>(made.release());
    });
  }
  static void event_destroy(void*, pliant_event* handle) noexcept { delete reinterpret_cast<Event*>(handle); }
  static int32_t event_record(void* self, pliant_event* event, pliant_stream* stream, pliant_error* error) noexcept {
    return guarded(error, [&] { device_of(self).record(open(event), open(stream)); });
  }
  static int32_t event_query(void* self, pliant_event* event, int32_t* done, pliant_error* error) noexcept {
    return guarded(error, [&] { *done = device_of(self).query(open(event)) ? 1 : 0; });
  }
  static int32_t event_synchronize(void* self, pliant_event* event, pliant_error* error) noexcept {
    return guarded(error, [&] { device_of(self).synchronize(open(event)); });
  }
  static int32_t event_elapsed(void* self, pliant_event* begin, pliant_event* end, double* seconds,
                               pliant_error* error) noexcept {
    return guarded(error, [&] { *seconds = device_of(self).elapsed(open(begin), open(end)); });
  }
  static int32_t stream_wait_event(void* self, pliant_stream* stream, pliant_event* event,
                                   pliant_error* error) noexcept {
    return guarded(error, [&] { device_of(self).wait(open(stream), open(event)); });
  }

  static int32_t copy_async(void* self, void* to, const void* from, uint64_t bytes, pliant_stream* stream,
                            pliant_error* error) noexcept {
    return guarded(error, [&] {
      check::copy({to, from, bytes});
      device_of(self).copy(to, from, bytes, open(stream));
    });
  }
  static int32_t copy_batch_async(void* self, const pliant_copy* copies, uint64_t count, pliant_stream* stream,
                                  pliant_error* error) noexcept {
    return guarded(error, [&] {
      require(copies != nullptr || count == 0, "the array of copies is NULL");
      const std::span<const pliant_copy> all(copies, count);
      for (const pliant_copy& one : all) check::copy(one);
      device_of(self).copy(all, open(stream));
    });
  }
  static int32_t reduce_async(void* self, void* to, const void* const* from, int32_t sources, uint64_t count,
                              int32_t dtype, int32_t op, double scale, pliant_stream* stream,
                              pliant_error* error) noexcept {
    return guarded(error, [&] {
      require(sources >= 1 && sources <= 1024,
              [&] { return "a reduction has 1 to 1024 sources; got " + std::to_string(sources); });
      require(from != nullptr, "the array of sources is NULL");
      const Elements elements = check::elements(count, dtype, 1);
      require(scale == 1 || !is_integer(elements.dtype), [&] {
        return std::string("integers have scale 1; got ") + std::to_string(scale) + " for " + name_of(elements.dtype);
      });
      check::buffer(to, elements, "the target");
      const std::span<const void* const> all(from, static_cast<size_t>(sources));
      for (const void* one : all) {
        check::buffer(one, elements, "a source");
        if (one != to) check::apart(to, elements.bytes(), one, elements.bytes());
      }
      device_of(self).reduce(to, all, elements, check::op(op), scale, open(stream));
    });
  }
  static int32_t cast_async(void* self, void* to, int32_t to_dtype, const void* from, int32_t from_dtype,
                            uint64_t count, pliant_stream* stream, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const Elements source = check::elements(count, from_dtype, 1);
      const Elements target = check::elements(count, to_dtype, 1);
      check::buffer(to, target, "the target");
      check::buffer(from, source, "the source");
      check::apart(to, target.bytes(), from, source.bytes());
      device_of(self).cast(to, target.dtype, from, source, open(stream));
    });
  }
  static int32_t host_function(void* self, void (*function)(void*), void* context, pliant_stream* stream,
                               pliant_error* error) noexcept {
    return guarded(error, [&] {
      require(function != nullptr, "the function is NULL");
      device_of(self).call(function, context, open(stream));
    });
  }
  static int32_t fill_async(void* self, void* to, int32_t byte, uint64_t bytes, pliant_stream* stream,
                            pliant_error* error) noexcept {
    return guarded(error, [&] {
      check::buffer(to, bytes, "the target");
      require(byte >= 0 && byte <= 255,
              [&] { return "a fill value is one byte, 0..255; got " + std::to_string(byte); });
      device_of(self).fill(to, static_cast<uint8_t>(byte), bytes, open(stream));
    });
  }

  static int32_t why_no_devices(void* self, char* text, uint64_t size, pliant_error* error) noexcept {
    return guarded(error, [&] {
      require(text != nullptr && size > 0, "there is no room for the reason");
      std::string why;
      if (device_of(self).device_count() == 0) why = device_of(self).why_no_devices();
      const size_t length = std::min<size_t>(why.size(), size - 1);
      std::memcpy(text, why.data(), length);
      text[length] = '\0';
    });
  }
  static constexpr auto why_slot() -> decltype(&why_no_devices) {
    if constexpr (requires(T & plugin) { plugin.why_no_devices(); }) return &why_no_devices;
    return nullptr;
  }

  static int32_t digest_blocks_async(void* self, uint64_t* to, const void* from, uint64_t blocks, pliant_stream* stream,
                                     pliant_error* error) noexcept {
    return guarded(error, [&] {
      const Elements values = check::elements(blocks, PLIANT_I64, kDigestBlockBytes / 8);
      const Elements words{values.count * (kDigestBlockBytes / 4), DType::kI32};
      check::buffer(to, values, "the target");
      check::buffer(from, words, "the source");
      check::apart(to, values.bytes(), from, words.bytes());
      device_of(self).digest_blocks(to, from, blocks, open(stream));
    });
  }
  static constexpr auto digest_slot() -> decltype(&digest_blocks_async) {
    if constexpr (requires(T & plugin, uint64_t * to, Stream & on) { plugin.digest_blocks(to, to, uint64_t{}, on); }) {
      return &digest_blocks_async;
    }
    return nullptr;
  }

  static int32_t pointer_info(void* self, const void* pointer, pliant_pointer_info* out, pliant_error* error) noexcept {
    return guarded(error, [&] {
      pliant_pointer_info answer{};
      answer.device = -1;
      if (const std::optional<PointerInfo> known = device_of(self).pointer_info(pointer)) {
        answer.memory = static_cast<int32_t>(known->memory);
        answer.device = known->device;
        answer.base = known->base;
        answer.bytes = known->base == nullptr ? 0 : known->bytes;
      }
      fill(out, answer);
    });
  }
  static constexpr auto pointer_slot() -> decltype(&pointer_info) {
    if constexpr (requires(T & plugin) { plugin.pointer_info(static_cast<const void*>(nullptr)); }) {
      return &pointer_info;
    }
    return nullptr;
  }

  static int32_t alloc_aligned(void* self, int32_t device, int32_t memory, uint64_t bytes, uint64_t alignment,
                               void** out, pliant_error* error) noexcept {
    return guarded(error, [&] {
      *out = nullptr;
      const Memory kind = known_memory(device_of(self), device, memory);
      check::alignment(alignment);
      *out = device_of(self).alloc_aligned(device, kind, bytes, alignment);
    });
  }
  static constexpr auto aligned_slot() -> decltype(&alloc_aligned) {
    if constexpr (requires(T & plugin) { plugin.alloc_aligned(int32_t{}, Memory{}, uint64_t{}, uint64_t{}); }) {
      return &alloc_aligned;
    }
    return nullptr;
  }

  static int32_t spend_async(void* self, uint64_t nanoseconds, pliant_stream* stream, pliant_error* error) noexcept {
    return guarded(error, [&] {
      require(nanoseconds <= kMostSpentNs, [&] {
        return "a stream can be kept busy for up to " + std::to_string(kMostSpentNs) + " ns at once; got " +
               std::to_string(nanoseconds);
      });
      device_of(self).spend(nanoseconds, open(stream));
    });
  }
  static constexpr auto spend_slot() -> decltype(&spend_async) {
    if constexpr (requires(T & plugin, Stream & on) { plugin.spend(uint64_t{}, on); }) return &spend_async;
    return nullptr;
  }

  static int32_t register_host(void* self, void* pointer, uint64_t bytes, pliant_error* error) noexcept {
    return guarded(error, [&] {
      require(pointer != nullptr && bytes != 0, "there is no memory to register: it is NULL or has 0 bytes");
      require(bytes <= std::numeric_limits<uintptr_t>::max() - reinterpret_cast<uintptr_t>(pointer),
              [&] { return std::to_string(bytes) + " bytes from there leave the address space"; });
      device_of(self).register_host(pointer, bytes);
    });
  }
  static void unregister_host(void* self, void* pointer) noexcept {
    if (pointer == nullptr) return;
    guarded(nullptr, [&] { device_of(self).unregister_host(pointer); });
  }
  static constexpr bool kRegisters = requires(T & plugin, void* pointer) {
    plugin.register_host(pointer, uint64_t{});
    plugin.unregister_host(pointer);
  };
  static constexpr auto register_slot() -> decltype(&register_host) {
    if constexpr (kRegisters) return &register_host;
    return nullptr;
  }
  static constexpr auto unregister_slot() -> decltype(&unregister_host) {
    if constexpr (kRegisters) return &unregister_host;
    return nullptr;
  }

  static const void* vtable() noexcept {
    static const pliant_accelerator kTable{sizeof(pliant_accelerator),
                                           0,
                                           &device_count,
                                           &device_properties,
                                           &alloc,
                                           &free,
                                           &memory_info,
                                           &stream_create,
                                           &stream_destroy,
                                           &stream_query,
                                           &stream_synchronize,
                                           &event_create,
                                           &event_destroy,
                                           &event_record,
                                           &event_query,
                                           &event_synchronize,
                                           &event_elapsed,
                                           &stream_wait_event,
                                           &copy_async,
                                           &fill_async,
                                           &copy_batch_async,
                                           &reduce_async,
                                           &cast_async,
                                           &host_function,
                                           why_slot(),
                                           digest_slot(),
                                           pointer_slot(),
                                           aligned_slot(),
                                           spend_slot(),
                                           register_slot(),
                                           unregister_slot()};
    return &kTable;
  }
};

}  // namespace detail
}  // namespace pliant::sdk

#define PLIANT_ACCELERATOR(Type, name, version, summary) \
  PLIANT_DETAIL_EXPORT(Type, AcceleratorAdapter, PLIANT_KIND_ACCELERATOR, name, version, summary)
