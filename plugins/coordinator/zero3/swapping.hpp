// Shards that lie on a tier: which are in a buffer of the device, and which to load ahead of their gather.
#pragma once

#include <cstdint>
#include <vector>

#include "pliant/sdk/coordinator.hpp"

namespace pliant::coordinator::zero3 {

class Swapping {
 public:
  /// No tier: every shard is on the device.
  Swapping() = default;
  Swapping(size_t parameters, int64_t buffers) : on_(true), buffers_(buffers), in_buffer_(parameters) {}

  [[nodiscard]] bool on() const { return on_; }
  /// True while the shard is on the tier alone and no load of it was begun.
  [[nodiscard]] bool away(uint32_t parameter) const { return on_ && !in_buffer_[parameter]; }
  [[nodiscard]] bool has_room() const { return buffers_ > 0; }
  void load(uint32_t parameter, sdk::Actions& actions) {
    in_buffer_[parameter] = true;
    --buffers_;
    actions.load(parameter, kTier);
  }
  [[nodiscard]] bool same_state(const Swapping& other) const {
    return buffers_ == other.buffers_ && in_buffer_ == other.in_buffer_;
  }
  /// The buffer of the shard is free again.
  void free(uint32_t parameter) {
    if (!on_ || !in_buffer_[parameter]) return;
    in_buffer_[parameter] = false;
    ++buffers_;
  }

 private:
  static constexpr uint64_t kTier = 0;  ///< the only one
  bool on_ = false;
  int64_t buffers_ = 0;  ///< free ones; below 0 where gathers that could not wait took more
  std::vector<bool> in_buffer_;
};

}  // namespace pliant::coordinator::zero3
