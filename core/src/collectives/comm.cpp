// Groups and messages of a generic communicator.
#include <algorithm>
#include <string>
#include <utility>

#include "collectives/comm_state.hpp"
#include "collectives/transport/peer_messages.hpp"

namespace pliant::detail {

using sdk::Failure;

GenericCollectives::Comm::~Comm() {
  if (owner_.is_forked()) {  // the rank is the parent's, and its threads are not here
    static_cast<void>(shared_.release());
    return;
  }
  shared_->close();
  if (shared_->is_idle()) shared_->let_go();
  const std::lock_guard lock(owner_.mutex_);
  owner_.retired_.push_back(std::move(shared_));
}

GenericCollectives::Comm::Open* GenericCollectives::Comm::group_for(pliant_stream* stream) {
  if (!open_) return nullptr;
  sdk::require(open_->stream == nullptr || open_->stream == stream, "all calls of a group name the same stream");
  open_->stream = stream;
  return &*open_;
}

void GenericCollectives::Comm::enqueue(Shared::Body collective, pliant_stream* stream) {
  {
    const std::lock_guard lock(opening_);
    if (Open* group = group_for(stream)) {
      group->collectives.push_back(std::move(collective));
      return;
    }
  }
  shared_->call(
      [shared = shared_.get(), collective = std::move(collective)](pliant_stream* on) {
        collective(on);
        shared->count_collective();
      },
      stream);
}

void GenericCollectives::Comm::enqueue(const Message& message, pliant_stream* stream) {
  {
    const std::lock_guard lock(opening_);
    if (Open* group = group_for(stream)) {
      group->messages.push_back(message);
      return;
    }
  }
  if (message.peer == shared_->rank) {
    throw Failure(PLIANT_INVALID_ARGUMENT,
                  "rank " + std::to_string(message.peer) + " is its own peer; a rank sends to itself in a group only")
        .about_rank(message.peer);
  }
  shared_->call([shared = shared_.get(), message](pliant_stream* on) { exchange(*shared, {message}, on); }, stream);
}

void GenericCollectives::Comm::begin_group() {
  const std::lock_guard lock(opening_);
  if (open_) throw Failure(PLIANT_FAILED_PRECONDITION, "this communicator has a group already; groups do not nest");
  open_ = Open{};
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
  if (ended.collectives.empty() && ended.messages.empty()) return;
  pliant_stream* const stream = ended.stream;
  shared_->call(
      [shared = shared_.get(), all = std::move(ended)](pliant_stream* on) {
        const OwnComm* const native = shared->own();
        if (native != nullptr) native->call(&pliant_collectives::group_begin);
        try {
          for (const auto& collective : all.collectives) collective(on);
          if (!all.messages.empty()) exchange(*shared, all.messages, on);
          if (native != nullptr) native->call(&pliant_collectives::group_end);
          for (size_t i = 0; i < all.collectives.size(); ++i) shared->count_collective();
        } catch (const Failure& failure) {
          // Some of its calls may be with the collectives already, and the peers make all of them.
          if (native != nullptr)
            shared->fail(Failure(PLIANT_ABORTED, std::string("a group failed: ") + failure.what())
                             .about_rank(failure.rank())
                             .about_device(failure.device()));
          throw;
        }
      },
      stream);
}

void GenericCollectives::Comm::exchange(Shared& shared, const std::vector<Message>& messages, pliant_stream* stream) {
  if (const OwnComm* own = shared.own()) {
    for (const Message& message : messages) {
      const auto dtype = static_cast<int32_t>(message.elements.dtype);
      const uint64_t count = message.elements.count;
      if (message.is_send) {
        own->call(&pliant_collectives::send, message.buffer, count, dtype, message.peer, stream);
      } else {
        own->call(&pliant_collectives::recv, message.buffer, count, dtype, message.peer, stream);
      }
      shared.count_message(message.is_send, message.peer);
    }
    return;
  }
  if (shared.board() != nullptr) return between_devices::exchange(shared, messages, stream);
  const auto room = [](const Message& message) {
    return (message.elements.bytes() + kCacheLine - 1) / kCacheLine * kCacheLine;
  };
  std::vector<Message> staged = messages;
  MessageStage* stage = nullptr;
  std::vector<pliant_copy> to_stage;
  std::vector<pliant_copy> from_stage;
  if (!shared.is_direct) {
    uint64_t bytes = 0;
    for (const Message& message : messages) bytes += room(message);
    stage = &shared.message_stage(bytes);
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
  if (!to_stage.empty()) shared.copy(to_stage, stream);
  shared.step(stream, [&shared, staged](pliant_comm* comm, pliant_stream* on) {
    const Called& carrier = shared.carrier;
    carrier.collectives.must(&pliant_collectives::group_begin, comm);
    for (const Message& message : staged) {
      const auto dtype = static_cast<int32_t>(message.elements.dtype);
      if (message.is_send) {
        carrier.collectives.must(&pliant_collectives::send, comm, message.buffer, message.elements.count, dtype,
                                 message.peer, on);
      } else {
        carrier.collectives.must(&pliant_collectives::recv, comm, message.buffer, message.elements.count, dtype,
                                 message.peer, on);
      }
    }
    carrier.collectives.must(&pliant_collectives::group_end, comm);
  });
  if (!from_stage.empty()) shared.copy(from_stage, stream);
  if (stage != nullptr) stage->lend_until(stream);
}

}  // namespace pliant::detail
