// Accelerator: RAII over an accelerator plugin: buffers, streams, events, communicators.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "pliant/config.hpp"

namespace pliant {

enum class DType : int32_t { kF32 = 1, kF64 = 2, kI32 = 3, kI64 = 4, kU8 = 5, kF16 = 6, kBF16 = 7 };
enum class ReduceOp : int32_t { kSum = 1, kMin = 2, kMax = 3 };

/// Names a communicator-to-be; opaque bytes.
using CommId = std::array<uint8_t, 128>;

class Stream;
class Communicator;

struct DeviceProperties {
  std::string name;
  uint64_t memory_bytes = 0;
  bool host_visible = false;  ///< device memory may be touched by the CPU
  bool fixed_order = false;   ///< reductions add in rank order
};

/// An open accelerator plugin. Copyable handle; streams, buffers and communicators keep it alive.
class Accelerator {
 public:
  /// `config` was opened with needs.accelerator.
  explicit Accelerator(const Config& config);

  [[nodiscard]] int32_t device_count() const;
  [[nodiscard]] DeviceProperties properties(int32_t device) const;
  [[nodiscard]] CommId make_comm_id(int32_t world_size) const;

  struct State;
  [[nodiscard]] const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

/// Device or pinned memory. Movable.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Accelerator& accelerator, int32_t device, uint64_t bytes, bool pinned = false);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  [[nodiscard]] void* pointer() const { return pointer_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Accelerator::State> accelerator_;
  void* pointer_ = nullptr;
  uint64_t bytes_ = 0;
  int32_t device_ = 0;
  int32_t memory_ = 0;
};

/// A queue of work. All calls throw Error; kPeerLost and kAborted say that a collective on it failed.
class Stream {
 public:
  Stream(const Accelerator& accelerator, int32_t device);
  ~Stream();
  Stream(Stream&&) noexcept;
  void synchronize();
  void copy(void* to, const void* from, uint64_t bytes);

  struct State;
  [[nodiscard]] State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// A group of ranks. Collectives enqueue on a stream and return at once. abort() may be called from any thread. An
/// accelerator without collectives of its own gets generic ones, carried by the accelerator `host` where it is found:
/// between ranks of one machine, through pinned memory or, where the processors see it, the device's.
class Communicator {
 public:
  Communicator(const Accelerator& accelerator, int32_t device, const CommId& id, int32_t rank, int32_t world_size);
  ~Communicator();
  [[nodiscard]] int32_t rank() const;
  [[nodiscard]] int32_t world_size() const;
  /// Waits until every rank has joined. Throws kAborted, kPeerLost, or kDeadlineExceeded after timeout_ms (-1 = none).
  void wait_ready(int32_t timeout_ms = -1);
  void abort() noexcept;
  void all_reduce(const void* send, void* recv, uint64_t count, DType dtype, ReduceOp op, Stream& stream);
  void all_gather(const void* send, void* recv, uint64_t count, DType dtype, Stream& stream);
  void reduce_scatter(const void* send, void* recv, uint64_t count, DType dtype, ReduceOp op, Stream& stream);
  void broadcast(void* buffer, uint64_t count, DType dtype, int32_t root, Stream& stream);
  void barrier(Stream& stream);
  /// As all_gather with counts[r] elements of rank r, the same counts on every rank.
  void all_gather_v(const void* send, void* recv, std::span<const uint64_t> counts, DType dtype, Stream& stream);
  /// One message to `peer`, or from it, of as many elements on both sides; those of two ranks arrive in their order.
  /// The stream goes on when it has been taken, or has arrived; messages that cross belong into a group.
  void send(const void* buffer, uint64_t count, DType dtype, int32_t peer, Stream& stream);
  void recv(void* buffer, uint64_t count, DType dtype, int32_t peer, Stream& stream);
  /// Calls between the two are enqueued by end_group, on one stream: collectives in their order, then all messages at
  /// once. One thread at a time.
  void begin_group();
  void end_group();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pliant
