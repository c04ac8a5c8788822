// Arena: memory for buffers of collectives, made once and given out in stream order.
#pragma once

#include <cstdint>
#include <memory>

#include "pliant/accelerator.hpp"
#include "pliant/communicator.hpp"

namespace pliant {

/// One allocation of device memory, of which ArenaBuffers are pieces. It begins at a multiple of 4096, whatever its
/// kind, so that files may be read into it directly and all of it may become a window. Where a piece lies depends on
/// the calls alone, so ranks that take and give back the same sizes in the same order have them at the same offsets,
/// which windows ask for. One thread at a time. Taking a piece is O(gaps, and pieces that were given back while work of
/// theirs still runs, and 64); giving it back is O(log gaps). Ends after its pieces and after the communicators that
/// know it, and waits for work of pieces. Movable.
class Arena {
 public:
  /// Pieces begin at multiples of it and are as large.
  static constexpr uint64_t kAlignment = 256;

  /// `bytes` are rounded up to a multiple of 4096. Throws kResourceExhausted when the device has no such memory left.
  Arena(const Accelerator& accelerator, int32_t device, uint64_t bytes, MemoryKind kind = MemoryKind::kWindow);
  ~Arena();
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;

  /// Makes all of it a window of the communicator: Communicator::register_window. A communicator that was shrunk or
  /// grown is told again.
  void register_with(Communicator& communicator, Stream& stream);

  [[nodiscard]] void* pointer() const;
  [[nodiscard]] uint64_t bytes() const;
  [[nodiscard]] uint64_t free_bytes() const;
  /// Of the largest piece that can be taken.
  [[nodiscard]] uint64_t largest_free_bytes() const;

  struct State;

 private:
  friend struct detail::Inside;
  std::shared_ptr<State> state_;
};

enum class ArenaSide { kBegin, kEnd };

/// A piece of an arena, for work that is enqueued on `stream` after this is made. Taking it and giving it back wait for
/// nothing: work of the next owner waits, on the device, for what was enqueued before. Movable.
class ArenaBuffer {
 public:
  ArenaBuffer() = default;
  /// The first gap that is large enough, from the begin of the arena or from its end. Throws kResourceExhausted when
  /// there is none, on every rank alike.
  ArenaBuffer(Arena& arena, Stream& stream, uint64_t bytes, ArenaSide side = ArenaSide::kBegin);
  /// At `offset`, a multiple of Arena::kAlignment. Throws kInvalidArgument for one that is not, kResourceExhausted
  /// where something lies there or the arena ends before.
  static ArenaBuffer at(Arena& arena, Stream& stream, uint64_t offset, uint64_t bytes);
  /// As give_back, on the stream that it was made on, which still lives.
  ~ArenaBuffer();
  ArenaBuffer(ArenaBuffer&& other) noexcept;
  ArenaBuffer& operator=(ArenaBuffer&& other) noexcept;
  /// `last`: the stream whose work used it last; all other work on it lies before that by events.
  void give_back(Stream& last);
  /// All work that uses it is enqueued, on `last` or before that by events: when it is given back, its next owner waits
  /// for what `last` has been given by now, and for nothing later.
  void end_use(Stream& last);
  [[nodiscard]] void* pointer() const { return pointer_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  ArenaBuffer(Arena& arena, Stream& stream, uint64_t bytes, uint64_t begin);
  void give_back_on(Stream::State& last);
  [[nodiscard]] uint64_t offset() const;

  std::shared_ptr<Arena::State> arena_;
  Stream::State* stream_ = nullptr;
  void* pointer_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace pliant
