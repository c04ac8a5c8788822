// Accelerator: RAII over an accelerator plugin: memory, streams, events, work on streams. What ranks exchange is in
// communicator.hpp.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "pliant/config.hpp"

namespace pliant {

enum class DType : int32_t { kF32 = 1, kF64 = 2, kI32 = 3, kI64 = 4, kU8 = 5, kF16 = 6, kBF16 = 7 };
enum class ReduceOp : int32_t { kSum = 1, kMin = 2, kMax = 3 };
enum class MemoryKind : int32_t {
  kDevice = 1,
  kPinned = 2,    ///< the CPU's, where the device copies fastest
  kShared = 3,    ///< read and written by both; pinned where the device has none
  kExchange = 4,  ///< the device's, for collectives; plain device memory where it has none
  kWindow = 5     ///< the device's, for Communicator::register_window; plain device memory where it has none
};
/// What a stream is for, and how soon: hints for devices with engines of their own for each.
enum class StreamRole : int32_t { kCompute = 0, kGather = 1, kScatter = 2, kToDevice = 3, kToHost = 4 };
enum class Priority : int32_t { kLow = -1, kNormal = 0, kHigh = 1 };

/// Names a communicator-to-be; opaque bytes.
using CommId = std::array<uint8_t, 128>;

class Stream;

struct DeviceProperties {
  std::string name;
  uint64_t memory_bytes = 0;
  bool host_visible = false;     ///< device memory may be touched by the CPU
  bool fixed_order = false;      ///< reductions add in rank order
  bool shared_memory = false;    ///< MemoryKind::kShared is more than pinned memory
  bool exchange_memory = false;  ///< MemoryKind::kExchange is more than device memory
  bool window_memory = false;    ///< MemoryKind::kWindow is more than device memory
};

/// Bytes of device memory that may still be had, as far as can be told, and of all there are.
struct MemoryInfo {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

/// What memory a pointer leads to.
struct PointerInfo {
  MemoryKind kind = MemoryKind::kDevice;  ///< kDevice may stand for kExchange and kWindow
  int32_t device = -1;                    ///< whose it is; -1: of no device more than of another
  const void* base = nullptr;             ///< of its allocation; NULL where that cannot be told
  uint64_t bytes = 0;                     ///< of the allocation; 0 where base is NULL
};

namespace detail {
struct Inside;
}

/// An open accelerator plugin. Copyable handle; streams, memory and communicators keep it alive. Any thread.
class Accelerator {
 public:
  /// `config` was opened with the need "accelerator".
  explicit Accelerator(const Config& config);

  [[nodiscard]] int32_t device_count() const;
  /// Why device_count is 0, in the accelerator's words; empty where it does not say.
  [[nodiscard]] std::string why_no_devices() const;
  [[nodiscard]] DeviceProperties properties(int32_t device) const;
  [[nodiscard]] MemoryInfo memory_info(int32_t device) const;
  /// Of any address. Empty for memory that the accelerator does not know, plain or freed, and where it cannot tell.
  [[nodiscard]] std::optional<PointerInfo> pointer_info(const void* pointer) const;
  /// For `world_size` ranks: made by one of them, carried to the others by any means, used once. This accelerator is
  /// kept until that rank's communicator is made.
  [[nodiscard]] CommId make_comm_id(int32_t world_size) const;
  /// Of the memory that StreamBuffers gave back at most so many bytes are kept for later ones; the rest goes back to
  /// the device, as far as no work uses it.
  void trim(int32_t device, uint64_t keep_bytes) const;

  struct State;

 private:
  friend struct detail::Inside;
  std::shared_ptr<State> state_;
};

/// Memory, freed when this ends: no enqueued work may use it then. Movable.
class Buffer {
 public:
  /// At least, of all memory.
  static constexpr uint64_t kAlignment = 64;
  /// That may be asked for at most; memory of kWindow has it.
  static constexpr uint64_t kPageAlignment = 4096;

  Buffer();
  /// Begins at a multiple of `alignment`, a power of two up to kPageAlignment. Throws kResourceExhausted when there is
  /// none left.
  Buffer(const Accelerator& accelerator, int32_t device, uint64_t bytes, MemoryKind kind = MemoryKind::kDevice,
         uint64_t alignment = kAlignment);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  [[nodiscard]] void* pointer() const { return pointer_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  void* pointer_ = nullptr;  ///< into its memory, which may begin before
  uint64_t bytes_ = 0;
};

/// Memory of the program that is pinned while this lives, where the accelerator can: copies from and to it then run as
/// with MemoryKind::kPinned. Elsewhere it stays as it is, and copies are staged as from any plain memory. It is freed
/// after this ends, and no enqueued work uses it then. Movable.
class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  /// `bytes` > 0. Throws kInvalidArgument where a part of it is registered already or is a Buffer's.
  RegisteredMemory(const Accelerator& accelerator, void* pointer, uint64_t bytes);
  ~RegisteredMemory();
  RegisteredMemory(RegisteredMemory&& other) noexcept;
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept;
  /// False where the accelerator cannot, not this memory, or no more.
  [[nodiscard]] bool is_pinned() const { return pinned_by_ != nullptr; }
  [[nodiscard]] void* pointer() const { return pointer_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Accelerator::State> pinned_by_;
  void* pointer_ = nullptr;
  uint64_t bytes_ = 0;
};

/// A point on a stream. Never recorded, it counts as reached. Movable.
class Event {
 public:
  /// `timing`: seconds_since may ask for it.
  explicit Event(const Accelerator& accelerator, int32_t device, bool timing = false);
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  void record(Stream& stream);
  [[nodiscard]] bool is_reached() const;
  void synchronize();
  /// Seconds of the device's clock between two recordings that are reached, both with `timing`.
  [[nodiscard]] double seconds_since(const Event& begin) const;

  struct State;

 private:
  friend struct detail::Inside;
  std::unique_ptr<State> state_;
};

/// A queue of work that runs in order; each call returns at once. All calls throw Error; what enqueued work meets is
/// thrown by synchronize: kPeerLost and kAborted say that a collective failed. Movable; waits when it ends.
class Stream {
 public:
  Stream(const Accelerator& accelerator, int32_t device, StreamRole role = StreamRole::kCompute,
         Priority priority = Priority::kNormal);
  ~Stream();
  Stream(Stream&&) noexcept;
  void synchronize();
  /// All that was enqueued has run. Tells no failure.
  [[nodiscard]] bool is_idle() const;
  /// Work enqueued from now on waits for the event as recorded by now.
  void wait(const Event& event);
  /// Any mix of device, pinned and plain memory; ranges do not overlap.
  void copy(void* to, const void* from, uint64_t bytes);
  void fill(void* to, uint8_t byte, uint64_t bytes);
  /// to[i] = (from[0][i] op from[1][i] op ...) * scale, in this order; 1 to 1024 sources, `to` may be one of them.
  /// 16-bit floats are computed as floats and rounded once; integers wrap around and need scale = 1.
  void reduce(void* to, std::span<const void* const> from, uint64_t count, DType dtype, ReduceOp op,
              double scale = 1.0);
  /// to[i] = from[i] as another type; rounding as cast_async of the ABI says.
  void cast(void* to, DType to_type, const void* from, DType from_type, uint64_t count);
  /// to[i] = a digest of the i-th block of 1024 bytes at `from`, as digest_blocks_async of the ABI says. `from` is
  /// aligned to 4 bytes; both lie in device or pinned memory. False, and nothing is enqueued, where the device cannot.
  [[nodiscard]] bool digest_blocks(uint64_t* to, const void* from, uint64_t blocks);
  /// Is busy for at least so long, up to 1000 s, as with a computation of that length: what is enqueued later begins no
  /// sooner, and streams of other roles go on meanwhile. By the device's clock; where it cannot, a function of the host
  /// waits.
  void spend(std::chrono::nanoseconds time);

  struct State;

 private:
  friend struct detail::Inside;
  std::unique_ptr<State> state_;
};

/// Device memory for work that is enqueued on `stream` after this is made and before it ends; taking it and giving it
/// back wait for nothing, and what was given back is used again. Ends before the stream, which may move. Movable.
class StreamBuffer {
 public:
  StreamBuffer() = default;
  StreamBuffer(Stream& stream, uint64_t bytes);
  ~StreamBuffer();
  StreamBuffer(StreamBuffer&& other) noexcept;
  StreamBuffer& operator=(StreamBuffer&& other) noexcept;
  [[nodiscard]] void* pointer() const { return pointer_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  Stream::State* stream_ = nullptr;
  void* pointer_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace pliant
