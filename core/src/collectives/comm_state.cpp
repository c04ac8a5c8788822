// Steps in turn, failures, and groups of a generic communicator.
#include "collectives/comm_state.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

namespace pliant::detail {

using sdk::Failure;

bool MessageStage::is_free() const {
  int32_t done = 0;
  used_.calls().must(&pliant_accelerator::event_query, used_, &done);
  return done != 0;
}

void MessageStage::lend_until(pliant_stream* stream) {
  used_.calls().must(&pliant_accelerator::event_record, used_, stream);
}

struct GenericCollectives::Shared::Step {
  Shared& shared;
  pliant_stream* stream;
  uint64_t number;
  Exchange exchange;
  std::function<void()> after;
};

GenericCollectives::Shared::Shared(GenericCollectives& all, int32_t used_device, const pliant_comm_id& id,
                                   int32_t own_rank, int32_t ranks, OwnComm::Renewal renewal)
    : owner(all),
      device{all.device_},
      carrier{all.carrier_},
      device_index(used_device),
      rank(own_rank),
      world_size(ranks),
      renewal_(std::move(renewal)) {
  pliant_device_properties properties{};
  properties.struct_size = sizeof(properties);
  device.slots.must(&pliant_accelerator::device_properties, device_index, &properties);
  is_direct = (properties.capabilities & PLIANT_CAP_HOST_VISIBLE) != 0;
  is_late = static_cast<bool>(owner.own_) || (!is_direct && PeerMemory::is_there(device, device_index));
  carrier_stream_ = sdk::make_stream(carrier.slots, 0, PLIANT_STREAM_COMPUTE, PLIANT_PRIORITY_HIGH);
  comm_ = sdk::OwnedComm(carrier.collectives);
  carrier.collectives.must(&pliant_collectives::comm_create, 0, &id, rank, world_size, comm_.out());
  if (owner.own_) begin_work();  // so that a communicator that is ready has agreed
}

GenericCollectives::Shared::~Shared() {
  close();
  stop_work();
  owner.forget_user(*this);
  carrier_stream_.reset();
}

void GenericCollectives::Shared::call(const Body& body, pliant_stream* stream) {
  const std::lock_guard lock(calling_);
  if (is_settled()) {
    owner.set_user(stream, *this);
    try {
      return body(stream);  // what they refuse they say themselves
    } catch (const Failure&) {
      check();  // why they were aborted
      throw;
    }
  }
  try {
    if (is_late) return call_late(body, stream);
    if (!has_met_) decline(stream);
    body(stream);
  } catch (const Failure& failure) {
    // Some of its steps may be enqueued, and the peers wait for the others.
    fail(Failure(PLIANT_ABORTED, std::string("a collective could not be enqueued: ") + failure.what())
             .about_rank(failure.rank())
             .about_device(failure.device()));
    throw;
  }
}

void GenericCollectives::Shared::step(pliant_stream* stream, Exchange exchange, std::function<void()> after) {
  auto made = std::make_unique<Step>(Step{*this, stream, steps_, std::move(exchange), std::move(after)});
  ++pending_;
  try {
    device.slots.must(&pliant_accelerator::host_function, &Shared::run, static_cast<void*>(made.get()), stream);
  } catch (...) {
    --pending_;
    throw;
  }
  ++steps_;
  static_cast<void>(made.release());  // run() deletes it
}

void GenericCollectives::Shared::note_failure(const Failure& failure, pliant_stream* stream) {
  fail(cause_of(failure));
  if (stream == late_stream_) return;  // the stream that waits for it is told
  std::unique_lock lock(mutex_);
  const Failure first = *failure_;
  lock.unlock();
  owner.note(stream, first);
}

void GenericCollectives::Shared::run(void* context) {
  Shared* shared = nullptr;
  {
    const std::unique_ptr<Step> step(static_cast<Step*>(context));
    shared = &step->shared;
    try {
      shared->exchange_in_turn(*step);
    } catch (const Failure& failure) {
      shared->note_failure(failure, step->stream);
    }
    const std::lock_guard lock(shared->mutex_);
    shared->turn_ = std::max(shared->turn_, step->number + 1);
    shared->changed_.notify_all();
  }
  --shared->pending_;  // from here on it may be gone
}

void GenericCollectives::Shared::exchange_in_turn(const Step& step) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || turn_ == step.number; });
    if (failure_) throw Failure(*failure_);
  }
  {
    const std::lock_guard lock(carrier_mutex_);
    require_open();
    step.exchange(comm_, carrier_stream_);
  }
  carrier.slots.must(&pliant_accelerator::stream_synchronize, carrier_stream_);
  if (step.after) step.after();
}

void GenericCollectives::Shared::copy(const std::vector<pliant_copy>& copies, pliant_stream* stream) const {
  device.slots.must(&pliant_accelerator::copy_batch_async, copies.data(), copies.size(), stream);
}

const GenericCollectives::Shared::Stages& GenericCollectives::Shared::stages(pliant_stream* stream) {
  std::unique_ptr<Stages>& found = stages_[stream];
  if (found == nullptr) {
    found.reset(new Stages{{device, device_index, kStageBytes}, {device, device_index, kStageBytes}});
  }
  return *found;
}

MessageStage& GenericCollectives::Shared::message_stage(uint64_t bytes) {
  for (const auto& stage : message_stages_) {
    if (stage->bytes() >= bytes && stage->is_free()) return *stage;
  }
  std::erase_if(message_stages_, [](const auto& stage) { return stage->is_free(); });  // they are too small
  return *message_stages_.emplace_back(std::make_unique<MessageStage>(device, device_index, bytes));
}

void GenericCollectives::Shared::check() {
  const std::lock_guard lock(mutex_);
  if (failure_) throw Failure(*failure_);
}

void GenericCollectives::Shared::check_here() {
  check();
  const std::lock_guard lock(carrier_mutex_);
  require_open();
}

void GenericCollectives::Shared::check_peers() {
  check();
  const std::lock_guard lock(carrier_mutex_);
  require_open();
  carrier.collectives.must(&pliant_collectives::comm_status, comm_, int32_t{0});
}

void GenericCollectives::Shared::require_open() const {
  if (!closed_) return;
  throw Failure(PLIANT_ABORTED, "this rank destroyed the communicator while work was enqueued on it");
}

// Of messages that do not fit together the carrier knows only that the rank that saw it has aborted.
Failure GenericCollectives::Shared::cause_of(const Failure& failure) {
  if (failure.status() != PLIANT_ABORTED) return failure;
  const std::lock_guard lock(jobs_mutex_);
  if (const auto lost = lost_peer()) return *lost;
  const int32_t saw = board_ == nullptr ? -1 : board_->mismatch();
  if (saw < 0 || saw == rank) return failure;
  return Failure(PLIANT_INVALID_ARGUMENT, "the ranks made calls that do not fit together; rank " + std::to_string(saw) +
                                              " saw it first and can say which")
      .about_rank(saw);
}

void GenericCollectives::Shared::fail(const Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    changed_.notify_all();
  }
  // Peers that wait for this rank would wait for ever.
  {
    const std::lock_guard lock(carrier_mutex_);
    if (!closed_) carrier.collectives->comm_abort(carrier.collectives.self(), comm_);
  }
  const std::lock_guard lock(jobs_mutex_);
  if (own_ != nullptr) own_->abort();
  if (renewal_.old != nullptr && renewal_.old.use_count() == 1) renewal_.old->abort();  // nobody else watches it
  if (board_ != nullptr && !board_->has_left()) board_->ring_all();
}

void GenericCollectives::Shared::wait_ready(int32_t timeout_ms) {
  check();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
  try {
    carrier.collectives.must(&pliant_collectives::comm_status, comm_, timeout_ms);
  } catch (const Failure& failure) {
    throw cause_of(failure);
  }
  if (owner.own_) await_agreement(end, timeout_ms >= 0);
}

void GenericCollectives::Shared::abort() {
  fail(Failure(PLIANT_ABORTED, "this rank aborted the communicator"));
}

void GenericCollectives::Shared::close() {
  note_own_failure();
  bool has_failed = false;
  {
    const std::lock_guard lock(mutex_);
    has_failed = failure_.has_value();
  }
  std::shared_ptr<OwnComm> ended;  // leaves with its peers, which takes a while
  {
    const std::lock_guard lock(jobs_mutex_);
    const bool is_carried = jobs_.empty() && !is_carrying_;
    if (own_ != nullptr && board_ != nullptr) {
      const bool is_done = is_carried && (own_->is_done() || (is_renewed_ && own_.use_count() > 1));
      board_->leave(has_failed ? Board::Left::kFailed : is_done ? Board::Left::kDone : Board::Left::kUndone);
    }
    if (is_carried) {
      ended = std::move(own_);
    } else if (own_ != nullptr) {
      own_->abort();
    }
  }
  {
    const std::lock_guard lock(carrier_mutex_);
    // The failure may have been noted and not told yet.
    if (!closed_ && has_failed) carrier.collectives->comm_abort(carrier.collectives.self(), comm_);
    if (!closed_) comm_.reset();
    closed_ = true;
  }
  const std::lock_guard lock(jobs_mutex_);
  if (board_ != nullptr) board_->leave(Board::Left::kDone);
}

void GenericCollectives::Shared::count_collective() const {
  if (own_ != nullptr && board_ != nullptr) board_->count_collective();
}

void GenericCollectives::Shared::count_message(bool is_send, int32_t peer) const {
  if (own_ != nullptr && board_ != nullptr) board_->count_message(is_send, peer);
}

}  // namespace pliant::detail
