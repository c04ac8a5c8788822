// Pinned memory of a device through which calls pass, and through which messages do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/transport/message.hpp"
#include "collectives/transport/steps.hpp"

namespace pliant::collectives {

class Stage {
 public:
  Stage(const Called& device, int32_t device_index, uint64_t bytes)
      : bytes_(bytes), memory_(device.slots, device_index, PLIANT_MEMORY_PINNED, bytes) {}
  [[nodiscard]] std::byte* memory() const { return static_cast<std::byte*>(memory_.get()); }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_;
  sdk::OwnedMemory memory_;
};

/// For one batch of messages after the other.
class MessageStage : public Stage {
 public:
  MessageStage(const Called& device, int32_t device_index, uint64_t bytes)
      : Stage(device, device_index, bytes), used_(sdk::make_event(device.slots, device_index)) {}
  [[nodiscard]] bool is_free() const;
  /// Free again when what is enqueued on `stream` by now has run.
  void lend_until(pliant_stream* stream);

 private:
  sdk::OwnedEvent used_;
};

/// The carrier sends and receives them in one group, in a step of `on`. It can use their buffers.
void carry_messages(Steps& steps, std::vector<Message> messages, pliant_stream* on);

/// Messages whose buffers the carrier cannot use. One thread at a time.
class StagedMessages {
 public:
  StagedMessages(Steps& steps, int32_t device_index) : steps_(steps), device_index_(device_index) {}
  /// As carry_messages, by way of pinned memory.
  void exchange(std::vector<Message> messages, pliant_stream* on);

 private:
  /// A free one of at least so many bytes.
  MessageStage& stage_of(uint64_t bytes);

  Steps& steps_;
  const int32_t device_index_;
  std::vector<std::unique_ptr<MessageStage>> stages_;
};

}  // namespace pliant::collectives
