// CommandList: the device's half of a stream: an immediate command list that runs in order, and what its commands need
// until they have run.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "event.hpp"

namespace pliant::level_zero {

/// Which queue of a device a stream uses.
struct QueueChoice {
  uint32_t ordinal = 0;
  uint32_t index = 0;
  ze_command_queue_priority_t priority = ZE_COMMAND_QUEUE_PRIORITY_NORMAL;
  bool computes = false;  ///< it takes kernels, too
};

/// Commands of an immediate list may overtake each other, so that barriers stand between them. One thread at a time.
/// Calls throw what Level Zero refuses.
class CommandList {
 public:
  using Append = std::function<void(const Api& api, ze_command_list_handle_t list)>;

  CommandList(const DeviceEntry& device, std::shared_ptr<EventPool> events, QueueChoice queue);
  /// All has run, or never will.
  ~CommandList();
  CommandList(const CommandList&) = delete;
  CommandList& operator=(const CommandList&) = delete;

  /// What `append` puts on the list runs after all before it; its own commands in any order.
  void add(const Append& append);
  /// What comes later waits for the mark, which is submitted and of the same context.
  void add_wait(std::shared_ptr<Mark> mark);
  /// Submits, reaches or fails the mark; when it fails, throws why.
  void add_mark(const std::shared_ptr<Mark>& mark);
  /// A mark behind all there is.
  std::shared_ptr<Mark> tail();
  /// Waits until all has run.
  void drain();
  /// Nothing was put here since it was last drained.
  [[nodiscard]] bool empty() const { return empty_; }
  /// A call or the device has failed.
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  /// What the commands before a mark need until the mark is reached.
  struct Fence {
    std::shared_ptr<Mark> mark;
    std::vector<std::shared_ptr<Mark>> held;
  };
  [[nodiscard]] ze_result_t barrier(ze_event_handle_t signal, ze_event_handle_t wait);
  void require(ze_result_t result, const char* call);
  void drop_reached();

  const DeviceEntry& device_;
  const std::shared_ptr<EventPool> events_;
  ze_command_list_handle_t list_ = nullptr;
  bool empty_ = true;
  bool broken_ = false;
  bool unordered_ = false;      ///< no barrier yet behind the last commands
  std::shared_ptr<Mark> tail_;  ///< behind all of the list, or NULL
  std::vector<std::shared_ptr<Mark>> held_;
  std::deque<Fence> fences_;
};

}  // namespace pliant::level_zero
