#include "sharded/trace/trace_recorder.hpp"

#include <utility>

namespace pliant::sharded {
namespace {

/// Shorter ones are no waits: to record two events may take so long.
constexpr double kLeastWait = 1;

double microseconds_of(TraceRecorder::Clock::time_point when) {
  return std::chrono::duration<double, std::micro>(when.time_since_epoch()).count();
}

}  // namespace

TraceRecorder::TraceRecorder(const Accelerator& accelerator, int32_t device, TraceLog log)
    : accelerator_(accelerator),
      device_(device),
      here_(accelerator.properties(device).host_visible),
      log_(std::move(log)) {}

// A stream whose work has failed tells no times; that is known elsewhere, and another group may stand after it.
template <class Work>
void TraceRecorder::if_it_can(const Work& work) noexcept {
  if (log_.is_full()) return;
  try {
    work();
  } catch (...) {
    transfer_.reset();
    wait_.reset();
    pending_.clear();
  }
}

void TraceRecorder::begin_group(TracedGroup group, Stream& exchange) noexcept {
  group.host_visible = here_;
  if_it_can([&] {
    pending_.clear();
    transfer_.reset();
    wait_.reset();
    calls_ = 0;
    is_in_call_ = false;
    log_.begin(group);
    read_clock(exchange);
  });
}

void TraceRecorder::end_step(Stream& exchange) noexcept {
  settle();
  if_it_can([&] { read_clock(exchange); });
}

// Anew in each step: the two clocks do not run alike, and the time between two events may be told in floats.
void TraceRecorder::read_clock(Stream& exchange) {
  auto made = std::make_shared<Base>(Base{Event(accelerator_, device_, true), 0});
  const double before = microseconds_of(Clock::now());
  made->event.record(exchange);
  made->event.synchronize();
  made->at = (before + microseconds_of(Clock::now())) / 2;
  base_ = std::move(made);
}

// Calls.

void TraceRecorder::begin_call(TracedCall::Kind kind, std::optional<uint32_t> module, Direction direction,
                               uint32_t micro_batches) noexcept {
  call_.kind = kind;
  call_.module = module;
  call_.direction = direction;
  call_.step = step_;
  call_.micro_batches = micro_batches;
  call_.actions.clear();
  call_.began = microseconds_of(Clock::now());
  is_in_call_ = true;
}

void TraceRecorder::answered(std::span<const pliant_action> actions) noexcept {
  if_it_can([&] { call_.actions.insert(call_.actions.end(), actions.begin(), actions.end()); });
}

void TraceRecorder::end_call(uint64_t live_bytes, uint64_t most_bytes) noexcept {
  call_.ended = microseconds_of(Clock::now());
  call_.live_bytes = live_bytes;
  call_.most_bytes = most_bytes;
  log_.add(call_);
  is_in_call_ = false;
  ++calls_;
  if (here_ || call_.kind == TracedCall::Kind::kEndPass) settle();
}

// Streams.

Event TraceRecorder::take_event() {
  if (spare_events_.empty()) return Event(accelerator_, device_, true);
  Event event = std::move(spare_events_.back());
  spare_events_.pop_back();
  return event;
}

void TraceRecorder::begin_pending(std::optional<Pending>& pending, Stream& stream) {
  pending.emplace(Pending{base_, take_event(), take_event(), {}});
  pending->what.call = call();
  pending->began.record(stream);
}

void TraceRecorder::end_pending(std::optional<Pending>& pending, Stream& stream) {
  pending->ended.record(stream);
  pending_.push_back(std::move(*pending));
  pending.reset();
}

void TraceRecorder::begin_transfer(Stream& exchange) noexcept {
  if_it_can([&] {
    if (base_) begin_pending(transfer_, exchange);
  });
}

void TraceRecorder::end_transfer(Stream& exchange, TracedTransfer::Kind kind, std::span<const uint32_t> parameters,
                                 uint64_t bytes, bool is_ahead) noexcept {
  if_it_can([&] {
    if (!transfer_) return;
    transfer_->what.kind = kind;
    transfer_->what.parameters.assign(parameters.begin(), parameters.end());
    transfer_->what.bytes = bytes;
    transfer_->what.is_ahead = is_ahead;
    end_pending(transfer_, exchange);
  });
}

void TraceRecorder::begin_wait(Stream& program) noexcept {
  if_it_can([&] {
    if (base_) begin_pending(wait_, program);
  });
}

void TraceRecorder::end_wait(Stream& program, TracedTransfer::Kind of, uint32_t parameter) noexcept {
  if_it_can([&] {
    if (!wait_) return;
    wait_->is_wait = true;
    wait_->what.kind = of;
    wait_->what.parameters.assign(1, parameter);
    end_pending(wait_, program);
  });
}

void TraceRecorder::waited(TracedTransfer::Kind of, uint32_t parameter, Clock::time_point began) noexcept {
  const double begin = microseconds_of(began);
  const double end = microseconds_of(Clock::now());
  if (end - begin >= kLeastWait) log_.add(TracedWait{of, parameter, call(), begin, end});
}

void TraceRecorder::settle() noexcept {
  if_it_can([&] {
    while (!pending_.empty() && pending_.front().ended.is_reached()) {
      Pending ended = std::move(pending_.front());
      pending_.pop_front();
      write(ended);
      spare_events_.push_back(std::move(ended.began));
      spare_events_.push_back(std::move(ended.ended));
    }
  });
}

void TraceRecorder::write(Pending& pending) {
  constexpr double kMicroseconds = 1e6;
  TracedTransfer& what = pending.what;
  what.began = pending.base->at + kMicroseconds * pending.began.seconds_since(pending.base->event);
  what.ended = what.began + kMicroseconds * pending.ended.seconds_since(pending.began);
  if (!pending.is_wait) return log_.add(what);
  if (what.ended - what.began < kLeastWait) return;
  log_.add(TracedWait{what.kind, what.parameters.front(), what.call, what.began, what.ended});
}

}  // namespace pliant::sharded
