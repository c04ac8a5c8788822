// Runtime: carries out the actions of a coordinator, so that parameters are whole when they must be.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "pliant/error.hpp"
#include "sharded/action_group.hpp"
#include "sharded/runtime.hpp"

namespace pliant::sharded {

// Coordinator has held the list against the rules.
void Runtime::carry_out(std::span<const pliant_action> actions) {
  if (recorder_ != nullptr) recorder_->answered(actions);
  while (!actions.empty()) {
    const std::span<const pliant_action> group = take_group(actions);
    const pliant_action& action = group.front();
    switch (action.kind) {
      case PLIANT_ACTION_GATHER:
        gather(group);
        break;
      case PLIANT_ACTION_REDUCE: {
        std::vector<uint32_t> parameters;
        for (const pliant_action& one : group) parameters.push_back(one.parameter);
        reduce(parameters, (action.flags & PLIANT_ACTION_LINGER) != 0);
        std::sort(parameters.begin(), parameters.end());
        std::erase_if(complete_, [&parameters](uint32_t one) {
          return std::binary_search(parameters.begin(), parameters.end(), one);
        });
        break;
      }
      case PLIANT_ACTION_WAIT:
        wait(action.parameter);
        break;
      case PLIANT_ACTION_RELEASE:
        if (!held_[action.parameter].by_hand) release_whole(action.parameter);
        break;
      case PLIANT_ACTION_DROP_TRACE:
        Log("coordinator").write(LogLevel::kDebug, fmt::format("{} drops its trace", coordinator_.name()));
        break;
      default:  // PLIANT_ACTION_BOUND_WAITS
        bound_waits(action.place);
    }
  }
}

void Runtime::gather(std::span<const pliant_action> group, ArenaSide side) {
  to_gather_.clear();
  gathered_now_.clear();
  uint64_t elements = 0;
  bool is_ahead = true;
  for (const pliant_action& action : group) {
    Held& one = held_[action.parameter];
    if (one.by_hand) continue;
    const auto byte = action.place == PLIANT_ANY_PLACE ? std::nullopt : std::optional<uint64_t>(action.place);
    one.value = take(model.parameter(action.parameter).elements, compute_, {"the whole of ", name(action.parameter)},
                     {byte, side});
    one.presence = Presence::kOnItsWay;
    one.gather = gathered_;
    if (model.parameter(action.parameter).elements > 0) {
      to_gather_.push_back({&owners_[action.parameter], one.value.pointer()});
      gathered_now_.push_back(action.parameter);
      elements += model.parameter(action.parameter).elements;
      is_ahead = is_ahead && (action.flags & PLIANT_ACTION_PREFETCH) != 0;
    }
  }
  traced_passes_.gathered += static_cast<int64_t>(gathered_now_.size());
  traced_passes_.gathered_bytes += elements * bytes_of(compute_);
  forget_ended_gathers();
  Gathering made{gathered_++, take_event()};
  if (!to_gather_.empty()) {
    const void* const weights = weights_to_gather();
    if (recorder_ != nullptr) recorder_->begin_transfer(exchange_stream_);
    costs_.begin_gather(exchange_stream_);
    exchange_->gather(to_gather_, weights, compute_);
    costs_.end_gather(exchange_stream_, gathered_now_);
    if (recorder_ != nullptr) {
      recorder_->end_transfer(exchange_stream_, TracedTransfer::Kind::kGather, gathered_now_,
                              elements * bytes_of(compute_), is_ahead);
    }
    if (begun_) begun_(Begun::kGather);
  }
  made.done.record(exchange_stream_);
  gatherings_.push_back(std::move(made));
}

void Runtime::wait(uint32_t parameter) {
  Held& one = held_[parameter];
  if (std::exchange(one.presence, Presence::kWhole) == Presence::kWhole) return;
  if (gatherings_.empty() || one.gather < gatherings_.front().number) return;  // it was waited for
  const auto found = gatherings_.begin() + static_cast<std::ptrdiff_t>(one.gather - gatherings_.front().number);
  if (!here_) {
    found->is_waited_for = true;
    if (recorder_ != nullptr) recorder_->begin_wait(program_);
    program_.wait(found->done);
    if (recorder_ != nullptr) recorder_->end_wait(program_, TracedTransfer::Kind::kGather, parameter);
    return;
  }
  synchronize(found->done, TracedTransfer::Kind::kGather, parameter);
  for (Scattering& sent : scatterings_) sent.is_passed = sent.is_passed || sent.next_gather <= found->number;
  for (auto ended = gatherings_.begin(); ended <= found; ++ended) spare_events_.push_back(std::move(ended->done));
  gatherings_.erase(gatherings_.begin(), found + 1);  // they run in order
}

void Runtime::synchronize(Event& done, TracedTransfer::Kind of, uint32_t parameter) {
  if (recorder_ == nullptr) return done.synchronize();
  const TraceRecorder::Clock::time_point began = TraceRecorder::Clock::now();
  done.synchronize();
  recorder_->waited(of, parameter, began);
}

void Runtime::bound_waits(uint64_t unfinished) {
  forget_ended_gathers();
  auto waits = static_cast<uint64_t>(
      std::count_if(gatherings_.begin(), gatherings_.end(), [](const Gathering& one) { return one.is_waited_for; }));
  while (waits > unfinished) {
    Gathering& oldest = gatherings_.front();
    oldest.done.synchronize();
    waits -= oldest.is_waited_for ? 1 : 0;
    forget_oldest_gather();
  }
}

void Runtime::forget_ended_gathers() {
  while (!gatherings_.empty() && gatherings_.front().is_waited_for && gatherings_.front().done.is_reached()) {
    forget_oldest_gather();
  }
}

void Runtime::forget_oldest_gather() {
  spare_events_.push_back(std::move(gatherings_.front().done));
  gatherings_.pop_front();
}

void Runtime::release_whole(uint32_t parameter) {
  follow_program();  // what it has enqueued may read it
  if (poisons_ && held_[parameter].presence == Presence::kWhole) poison(parameter);
  held_[parameter].value.reset();
  held_[parameter].presence = Presence::kAway;
}

// All bits set are NaN in f32 and in bf16.
void Runtime::poison(uint32_t parameter) {
  constexpr uint8_t kByte = 0xFF;
  const uint64_t bytes = model.parameter(parameter).elements * bytes_of(compute_);
  if (bytes == 0) return;
  void* const at = held_[parameter].value.pointer();
  if (here_) {
    std::memset(at, kByte, bytes);  // at once: the program may read it before the exchange comes to it
  } else {
    exchange_stream_.fill(at, kByte, bytes);
  }
}

void Runtime::follow_program() {
  if (here_) {
    if (!program_.is_idle()) program_.synchronize();
    return;
  }
  program_point_->record(program_);
  exchange_stream_.wait(*program_point_);
}

Event Runtime::take_event() {
  if (spare_events_.empty()) return Event(accelerator_, device_);
  Event event = std::move(spare_events_.back());
  spare_events_.pop_back();
  return event;
}

// Gradients that wait to be added up may lie where this must: in the way by their bytes, or between two gaps.
WholePiece Runtime::take(uint64_t count, DType type, const WholePurpose& what, const WholePlace& place, Stream& on) {
  const uint64_t bytes = count * bytes_of(type);
  if (!scatterings_.empty() || lingering_ || !let_go_.empty()) {
    try {
      return memory_->take(bytes, what, place, on);
    } catch (const Error& error) {
      if (error.status() != Status::kResourceExhausted) throw;
    }
    make_room();
  }
  try {
    return memory_->take(bytes, what, place, on);
  } catch (const Error& error) {
    const uint64_t by_hand = bytes_by_hand();
    if (error.status() != Status::kResourceExhausted || memory_->budget() == 0 || by_hand == 0) throw;
    throw error.with_lines(fmt::format(
        "; what is fetched by hand takes {} bytes of it: release that first, or raise the budget", by_hand));
  }
}

uint64_t Runtime::bytes_by_hand() const {
  uint64_t bytes = 0;
  for (uint32_t parameter = 0; parameter < held_.size(); ++parameter) {
    if (!held_[parameter].by_hand) continue;
    bytes += WholeMemory::taken_by(model.parameter(parameter).elements * bytes_of(compute_));
  }
  return bytes;
}

void Runtime::make_room() {
  drain_scatterings(true);
  retire();
  wait_for_let_go();
}

const void* Runtime::weights_to_gather() {
  if (!cast_) return array(0);
  if (!std::exchange(is_cast_, true)) {
    exchange_stream_.cast(cast_->pointer(), compute_, array(0), DType::kF32, shards_.bytes() / sizeof(float));
  }
  return cast_->pointer();
}

}  // namespace pliant::sharded
