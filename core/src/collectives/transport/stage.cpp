// Messages lie side by side in a stage, each at a cache line of its own.
#include "collectives/transport/stage.hpp"

#include <utility>

#include "collectives/transport/pieces.hpp"

namespace pliant::collectives {

bool MessageStage::is_free() const {
  int32_t done = 0;
  used_.calls().must(&pliant_accelerator::event_query, used_, &done);
  return done != 0;
}

void MessageStage::lend_until(pliant_stream* stream) {
  used_.calls().must(&pliant_accelerator::event_record, used_, stream);
}

void carry_messages(Steps& steps, std::vector<Message> messages, pliant_stream* on) {
  steps.step(on, [&carrier = steps.carrier(), all = std::move(messages)](pliant_comm* comm, pliant_stream* stream) {
    carrier.collectives.must(&pliant_collectives::group_begin, comm);
    for (const Message& message : all) {
      const int32_t dtype = raw(message.elements.dtype);
      if (message.is_send) {
        carrier.collectives.must(&pliant_collectives::send, comm, message.buffer, message.elements.count, dtype,
                                 message.peer, stream);
      } else {
        carrier.collectives.must(&pliant_collectives::recv, comm, message.buffer, message.elements.count, dtype,
                                 message.peer, stream);
      }
    }
    carrier.collectives.must(&pliant_collectives::group_end, comm);
  });
}

MessageStage& StagedMessages::stage_of(uint64_t bytes) {
  for (const auto& stage : stages_) {
    if (stage->bytes() >= bytes && stage->is_free()) return *stage;
  }
  std::erase_if(stages_, [](const auto& stage) { return stage->is_free(); });  // they are too small
  return *stages_.emplace_back(std::make_unique<MessageStage>(steps_.device(), device_index_, bytes));
}

void StagedMessages::exchange(std::vector<Message> messages, pliant_stream* on) {
  const auto room = [](const Message& message) {
    return (message.elements.bytes() + kCacheLine - 1) / kCacheLine * kCacheLine;
  };
  uint64_t bytes = 0;
  for (const Message& message : messages) bytes += room(message);
  MessageStage& stage = stage_of(bytes);
  std::vector<pliant_copy> to_stage;
  std::vector<pliant_copy> from_stage;
  std::byte* at = stage.memory();
  for (Message& message : messages) {
    if (message.is_send) {
      to_stage.push_back({at, message.buffer, message.elements.bytes()});
    } else {
      from_stage.push_back({message.buffer, at, message.elements.bytes()});
    }
    message.buffer = at;
    at += room(message);
  }
  if (!to_stage.empty()) steps_.copy(to_stage, on);
  carry_messages(steps_, std::move(messages), on);
  if (!from_stage.empty()) steps_.copy(from_stage, on);
  stage.lend_until(on);
}

}  // namespace pliant::collectives
