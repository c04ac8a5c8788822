// Keeps the calls of a group until its end.
#include "collectives/comm.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pliant::collectives {

using sdk::Failure;

Comm::~Comm() {
  if (owner_.is_forked()) {  // the rank is the parent's, and its threads are not here
    static_cast<void>(state_.release());
    return;
  }
  state_->close();
  if (state_->is_idle()) state_->let_go();
  owner_.retire(std::move(state_));
}

Comm::Open* Comm::group_for(pliant_stream* stream) {
  if (!open_) return nullptr;
  sdk::require(open_->stream == nullptr || open_->stream == stream, "all calls of a group name the same stream");
  open_->stream = stream;
  return &*open_;
}

void Comm::enqueue(CommState::Body collective, pliant_stream* stream) {
  {
    const std::lock_guard lock(opening_);
    if (Open* group = group_for(stream)) {
      group->collectives.push_back(std::move(collective));
      return;
    }
  }
  state_->call(
      [collective = std::move(collective)](Transport& via, pliant_stream* on) {
        collective(via, on);
        via.count_collectives(1);
      },
      stream);
}

void Comm::enqueue(const Message& message, pliant_stream* stream) {
  {
    const std::lock_guard lock(opening_);
    if (Open* group = group_for(stream)) {
      group->messages.push_back(message);
      return;
    }
  }
  if (message.peer == state_->rank()) {
    throw Failure(PLIANT_INVALID_ARGUMENT,
                  "rank " + std::to_string(message.peer) + " is its own peer; a rank sends to itself in a group only")
        .about_rank(message.peer);
  }
  state_->call([message](Transport& via, pliant_stream* on) { via.exchange({message}, on); }, stream);
}

void Comm::begin_group() {
  const std::lock_guard lock(opening_);
  if (open_) throw Failure(PLIANT_FAILED_PRECONDITION, "this communicator has a group already; groups do not nest");
  open_ = Open{};
}

void Comm::end_group() {
  Open ended;
  {
    const std::lock_guard lock(opening_);
    if (!open_) throw Failure(PLIANT_FAILED_PRECONDITION, "this communicator has no group that could end");
    ended = std::move(*open_);
    open_.reset();
  }
  const auto own = [&](bool is_send) {
    return std::count_if(ended.messages.begin(), ended.messages.end(), [&](const Message& message) {
      return message.is_send == is_send && message.peer == state_->rank();
    });
  };
  sdk::require(own(true) == own(false), [&] {
    return "in this group rank " + std::to_string(state_->rank()) + " sends itself " + std::to_string(own(true)) +
           " and receives " + std::to_string(own(false)) + " messages; nothing of the group was enqueued";
  });
  if (ended.collectives.empty() && ended.messages.empty()) return;
  pliant_stream* const stream = ended.stream;
  state_->call(
      [all = std::move(ended)](Transport& via, pliant_stream* on) {
        via.in_group([&] {
          for (const auto& collective : all.collectives) collective(via, on);
          if (!all.messages.empty()) via.exchange(all.messages, on);
        });
        via.count_collectives(all.collectives.size());
      },
      stream);
}

}  // namespace pliant::collectives
