// Steps in turn, failures, and groups of a generic communicator.
#include "accelerator/generic_comm.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

namespace pliant::detail {

using sdk::Failure;

const pliant_collectives& Called::collectives() const {
  const auto& record = instance.plugin().record();
  return *static_cast<const pliant_collectives*>(record.extension(instance.self(), PLIANT_COLLECTIVES));
}

Stage::Stage(const Called& device, int32_t device_index, uint64_t bytes)
    : device_(device), device_index_(device_index), bytes_(bytes) {
  void* made = nullptr;
  device_(device_.slots().alloc, device_index_, PLIANT_MEMORY_PINNED, bytes_, &made);
  memory_ = static_cast<std::byte*>(made);
}

Stage::~Stage() {
  device_.slots().free(device_.instance.self(), device_index_, PLIANT_MEMORY_PINNED, memory_);
}

MessageStage::MessageStage(const Called& device, int32_t device_index, uint64_t bytes)
    : Stage(device, device_index, bytes), device_(device) {
  device_(device_.slots().event_create, device_index, uint32_t{0}, &used_);
}

MessageStage::~MessageStage() {
  device_.slots().event_destroy(device_.instance.self(), used_);
}

bool MessageStage::is_free() const {
  int32_t done = 0;
  device_(device_.slots().event_query, used_, &done);
  return done != 0;
}

void MessageStage::lend_until(pliant_stream* stream) {
  device_(device_.slots().event_record, used_, stream);
}

struct GenericCollectives::Shared::Step {
  Shared& shared;
  pliant_stream* stream;
  uint64_t number;
  Exchange exchange;
};

GenericCollectives::Shared::Shared(GenericCollectives& all, int32_t used_device, const pliant_comm_id& id,
                                   int32_t own_rank, int32_t ranks)
    : owner(all),
      device{all.device_},
      carrier{all.carrier_},
      device_index(used_device),
      rank(own_rank),
      world_size(ranks) {
  pliant_device_properties properties{};
  properties.struct_size = sizeof(properties);
  device(device.slots().device_properties, device_index, &properties);
  is_direct = (properties.capabilities & PLIANT_CAP_HOST_VISIBLE) != 0;
  carrier(carrier.slots().stream_create, 0, PLIANT_STREAM_COMPUTE, PLIANT_PRIORITY_HIGH, &carrier_stream_);
  try {
    carrier(carrier.collectives().comm_create, 0, &id, rank, world_size, &comm_);
  } catch (...) {
    carrier.slots().stream_destroy(carrier.instance.self(), carrier_stream_);
    throw;
  }
}

GenericCollectives::Shared::~Shared() {
  close();
  carrier.slots().stream_destroy(carrier.instance.self(), carrier_stream_);
}

void GenericCollectives::Shared::call(const std::function<void()>& body) {
  const std::lock_guard lock(calling_);
  try {
    body();
  } catch (const Failure& failure) {
    // Some of its steps may be enqueued, and the peers wait for the others.
    fail(Failure(PLIANT_ABORTED, std::string("a collective could not be enqueued: ") + failure.what()));
    throw;
  }
}

void GenericCollectives::Shared::step(pliant_stream* stream, Exchange exchange) {
  auto made = std::make_unique<Step>(Step{*this, stream, steps_, std::move(exchange)});
  ++pending_;
  try {
    device(device.slots().host_function, &Shared::run, static_cast<void*>(made.get()), stream);
  } catch (...) {
    --pending_;
    throw;
  }
  ++steps_;
  static_cast<void>(made.release());  // run() deletes it
}

void GenericCollectives::Shared::run(void* context) {
  Shared* shared = nullptr;
  {
    const std::unique_ptr<Step> step(static_cast<Step*>(context));
    shared = &step->shared;
    try {
      shared->exchange_in_turn(*step);
    } catch (const Failure& failure) {
      shared->fail(failure);
      try {
        shared->check();
      } catch (const Failure& first) {
        shared->owner.note(step->stream, first);
      }
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
    if (closed_) {
      throw Failure(PLIANT_ABORTED, "this rank destroyed the communicator while work was enqueued on it");
    }
    step.exchange(comm_, carrier_stream_);
  }
  carrier(carrier.slots().stream_synchronize, carrier_stream_);
}

void GenericCollectives::Shared::copy(const std::vector<pliant_copy>& copies, pliant_stream* stream) const {
  device(device.slots().copy_batch_async, copies.data(), copies.size(), stream);
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

void GenericCollectives::Shared::fail(const Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    changed_.notify_all();
  }
  // Peers that wait for this rank would wait for ever.
  const std::lock_guard lock(carrier_mutex_);
  if (!closed_) carrier.collectives().comm_abort(carrier.instance.self(), comm_);
}

void GenericCollectives::Shared::wait_ready(int32_t timeout_ms) {
  check();
  carrier(carrier.collectives().comm_status, comm_, timeout_ms);
}

void GenericCollectives::Shared::abort() {
  fail(Failure(PLIANT_ABORTED, "this rank aborted the communicator"));
}

void GenericCollectives::Shared::close() {
  const std::lock_guard lock(carrier_mutex_);
  if (!closed_) carrier.collectives().comm_destroy(carrier.instance.self(), comm_);
  closed_ = true;
}

GenericCollectives::Comm::~Comm() {
  shared_->close();
  const std::lock_guard lock(owner_.mutex_);
  owner_.retired_.push_back(std::move(shared_));
}

GenericCollectives::Comm::Open* GenericCollectives::Comm::group_for(pliant_stream* stream) {
  if (!open_) return nullptr;
  sdk::require(open_->stream == nullptr || open_->stream == stream, "all calls of a group name the same stream");
  open_->stream = stream;
  return &*open_;
}

void GenericCollectives::Comm::enqueue(std::function<void()> collective, pliant_stream* stream) {
  {
    const std::lock_guard lock(opening_);
    if (Open* group = group_for(stream)) {
      group->collectives.push_back(std::move(collective));
      return;
    }
  }
  shared_->call(collective);
}

void GenericCollectives::Comm::enqueue(const Message& message, pliant_stream* stream) {
  {
    const std::lock_guard lock(opening_);
    if (Open* group = group_for(stream)) {
      group->messages.push_back(message);
      return;
    }
  }
  sdk::require(message.peer != shared_->rank,
               "rank " + std::to_string(message.peer) + " is its own peer; a rank sends to itself in a group only");
  shared_->call([&] { exchange({message}, stream); });
}

void GenericCollectives::Comm::begin_group() {
  const std::lock_guard lock(opening_);
  if (open_) throw Failure(PLIANT_FAILED_PRECONDITION, "this communicator has a group already; groups do not nest");
  open_.emplace();
}

void GenericCollectives::Comm::end_group() {
  Open ended;
  {
    const std::lock_guard lock(opening_);
    if (!open_) throw Failure(PLIANT_FAILED_PRECONDITION, "this communicator has no group that could end");
    ended = std::move(*open_);
    open_.reset();
  }
  const auto own = [&](bool is_send) {
    return std::count_if(ended.messages.begin(), ended.messages.end(), [&](const Message& message) {
      return message.is_send == is_send && message.peer == shared_->rank;
    });
  };
  sdk::require(own(true) == own(false), "in this group rank " + std::to_string(shared_->rank) + " sends itself " +
                                            std::to_string(own(true)) + " and receives " + std::to_string(own(false)) +
                                            " messages; nothing of the group was enqueued");
  shared_->call([&] {
    for (const auto& collective : ended.collectives) collective();
    if (!ended.messages.empty()) exchange(ended.messages, ended.stream);
  });
}

void GenericCollectives::Comm::exchange(const std::vector<Message>& messages, pliant_stream* stream) {
  constexpr uint64_t kLine = 64;
  const auto room = [](const Message& message) { return (message.elements.bytes() + kLine - 1) / kLine * kLine; };
  std::vector<Message> staged = messages;
  MessageStage* stage = nullptr;
  std::vector<pliant_copy> to_stage;
  std::vector<pliant_copy> from_stage;
  if (!shared_->is_direct) {
    uint64_t bytes = 0;
    for (const Message& message : messages) bytes += room(message);
    stage = &shared_->message_stage(bytes);
    std::byte* at = stage->memory();
    for (Message& message : staged) {
      if (message.is_send) {
        to_stage.push_back({at, message.buffer, message.elements.bytes()});
      } else {
        from_stage.push_back({message.buffer, at, message.elements.bytes()});
      }
      message.buffer = at;
      at += room(message);
    }
  }
  if (!to_stage.empty()) shared_->copy(to_stage, stream);
  shared_->step(stream, [shared = shared_.get(), staged](pliant_comm* comm, pliant_stream* on) {
    const Called& carrier = shared->carrier;
    carrier(carrier.collectives().group_begin, comm);
    for (const Message& message : staged) {
      const auto dtype = static_cast<int32_t>(message.elements.dtype);
      if (message.is_send) {
        carrier(carrier.collectives().send, comm, message.buffer, message.elements.count, dtype, message.peer, on);
      } else {
        carrier(carrier.collectives().recv, comm, message.buffer, message.elements.count, dtype, message.peer, on);
      }
    }
    carrier(carrier.collectives().group_end, comm);
  });
  if (!from_stage.empty()) shared_->copy(from_stage, stream);
  if (stage != nullptr) stage->lend_until(stream);
}

}  // namespace pliant::detail
