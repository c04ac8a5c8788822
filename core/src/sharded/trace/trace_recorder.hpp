// TraceRecorder: hears what a rank does, and writes it to a TraceLog: calls by the host's clock, what is on streams by
// the device's.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "pliant/accelerator.hpp"
#include "sharded/trace/trace_file.hpp"
#include "sharded/trace/trace_log.hpp"

namespace pliant::sharded {

/// No call fails: what cannot be told is left out. None waits, but begin_group and end_step, for what is on the stream
/// that they are given. One thread at a time.
class TraceRecorder {
 public:
  using Clock = std::chrono::steady_clock;

  TraceRecorder(const Accelerator& accelerator, int32_t device, TraceLog log);

  /// The ranks of a generation stand; nothing is on `exchange`, by whose events its clock is read. Whether the device's
  /// memory is the CPU's is known here.
  void begin_group(TracedGroup group, Stream& exchange) noexcept;
  /// What follows is of this step.
  void begin_step(int64_t step) { step_ = step; }
  /// The step's gradients are there: `exchange` has run.
  void end_step(Stream& exchange) noexcept;
  /// Writes what has ended on streams; what was enqueued before goes first.
  void settle() noexcept;

  void begin_call(TracedCall::Kind kind, std::optional<uint32_t> module = std::nullopt,
                  Direction direction = Direction::kForward, uint32_t micro_batches = 1) noexcept;
  /// Of the call that was begun; may come again.
  void answered(std::span<const pliant_action> actions) noexcept;
  /// The bytes are of the arena: now, and the most since this was last called.
  void end_call(uint64_t live_bytes, uint64_t most_bytes) noexcept;

  void begin_transfer(Stream& exchange) noexcept;
  void end_transfer(Stream& exchange, TracedTransfer::Kind kind, std::span<const uint32_t> parameters, uint64_t bytes,
                    bool is_ahead) noexcept;
  /// The host waited, until now.
  void waited(TracedTransfer::Kind of, uint32_t parameter, Clock::time_point began) noexcept;
  /// The program's stream waits for what is enqueued in between.
  void begin_wait(Stream& program) noexcept;
  void end_wait(Stream& program, TracedTransfer::Kind of, uint32_t parameter) noexcept;

 private:
  /// The same moment by the device's clock, and in microseconds by the host's.
  struct Base {
    Event event;
    double at;
  };
  /// Begun on a stream, and maybe not ended there.
  struct Pending {
    std::shared_ptr<const Base> base;
    Event began;
    Event ended;
    TracedTransfer what;
    bool is_wait = false;
  };
  template <class Work>
  void if_it_can(const Work& work) noexcept;
  void read_clock(Stream& exchange);
  void begin_pending(std::optional<Pending>& pending, Stream& stream);
  void end_pending(std::optional<Pending>& pending, Stream& stream);
  [[nodiscard]] Event take_event();
  void write(Pending& pending);
  /// The call in hand, or the last one.
  [[nodiscard]] size_t call() const { return is_in_call_ || calls_ == 0 ? calls_ : calls_ - 1; }

  const Accelerator accelerator_;
  const int32_t device_;
  const bool here_;  ///< events cost next to nothing: they are asked at every call
  TraceLog log_;
  int64_t step_ = 0;
  size_t calls_ = 0;  ///< of the group, that have ended
  bool is_in_call_ = false;
  TracedCall call_;
  std::shared_ptr<const Base> base_;
  std::optional<Pending> transfer_;  ///< begun
  std::optional<Pending> wait_;
  std::deque<Pending> pending_;  ///< in the order of their ends in the program
  std::vector<Event> spare_events_;
};

}  // namespace pliant::sharded
