// WholeMemory: memory for whole parameters, whole gradients and what is on its way between ranks, with its books.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "pliant/accelerator.hpp"
#include "pliant/arena.hpp"

namespace pliant::sharded {

/// A piece of it. Movable. Gives itself back, where there is a budget, to work that is enqueued on the memory's stream
/// afterwards, else on the stream that it was taken on.
class WholePiece {
 public:
  WholePiece() = default;
  ~WholePiece() { reset(); }
  WholePiece(WholePiece&& other) noexcept;
  WholePiece& operator=(WholePiece&& other) noexcept;
  void reset() noexcept;
  /// All work that uses it is enqueued on the memory's stream, or before that by events: whoever has this memory next
  /// waits for nothing later, whenever it is given back.
  void end_use();
  [[nodiscard]] void* pointer() const { return pointer_; }
  [[nodiscard]] float* floats() const { return static_cast<float*>(pointer_); }
  [[nodiscard]] explicit operator bool() const { return taken_; }

 private:
  friend class WholeMemory;
  bool taken_ = false;
  bool of_gradient_ = false;
  void* pointer_ = nullptr;
  uint64_t bytes_ = 0;
  class WholeMemory* books_ = nullptr;
  StreamBuffer own_;
  ArenaBuffer of_arena_;
};

/// Where a piece lies where there is a budget, and so one allocation: at a byte of it, or in the first gap from its
/// begin, which whole parameters have, or from its end, which what comes and goes has: places that a coordinator
/// planned from byte 0 on meet nothing else before the budget is full.
struct WholePlace {
  std::optional<uint64_t> byte;
  ArenaSide side = ArenaSide::kEnd;
};

/// What a piece is for, "the gradient of " and "up.weight": words for a refusal, put together when there is one.
struct WholePurpose {
  std::string_view before;
  std::string_view name{};
  std::string_view after{};
  bool is_gradient = false;  ///< WholeMemory::gradients() counts it
};

/// One thread at a time. Outlives its pieces; the stream outlives both.
class WholeMemory {
 public:
  /// `budget` in bytes: all pieces lie in one allocation of that size. 0: there is no limit. Throws kResourceExhausted
  /// (kInput), naming the option, where the device has not that much left.
  WholeMemory(const Accelerator& accelerator, int32_t device, Stream& stream, uint64_t budget);
  /// A piece of `bytes` bytes, for work that is enqueued on `on` from now on. Throws kResourceExhausted, saying what it
  /// is for, what it needs and what is taken, where the budget or the device does not suffice.
  [[nodiscard]] WholePiece take(uint64_t bytes, const WholePurpose& what, const WholePlace& place, Stream& on);
  [[nodiscard]] WholePiece take(uint64_t bytes, const WholePurpose& what, const WholePlace& place = {}) {
    return take(bytes, what, place, stream_);
  }

  /// That a piece of `bytes` bytes takes.
  [[nodiscard]] static uint64_t taken_by(uint64_t bytes);
  [[nodiscard]] uint64_t budget() const { return budget_; }
  [[nodiscard]] uint64_t taken() const { return taken_; }
  [[nodiscard]] uint64_t most_taken() const { return most_taken_; }
  /// Of that, what whole gradients of this rank take, from when a program adds to them until their owners have them.
  [[nodiscard]] uint64_t gradients() const { return gradients_; }
  [[nodiscard]] uint64_t most_gradients() const { return most_gradients_; }
  /// The most since this was last asked.
  [[nodiscard]] uint64_t take_most() { return std::exchange(most_since_, taken_); }

 private:
  friend class WholePiece;
  Stream& stream_;
  uint64_t budget_;
  std::optional<Arena> arena_;
  uint64_t taken_ = 0;
  uint64_t most_taken_ = 0;
  uint64_t most_since_ = 0;  ///< take_most()
  uint64_t gradients_ = 0;
  uint64_t most_gradients_ = 0;
};

}  // namespace pliant::sharded
