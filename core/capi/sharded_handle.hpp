// What is behind the handle of a sharded model: the session that it belongs to knows it, too.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "handle.hpp"
#include "pliant/sharded.hpp"

namespace pliant::capi {

/// A model, and the thread whose call on it is under way.
struct ShardedCore {
  /// Empty once it or its session was freed.
  std::optional<ShardedModel> model;
  bool is_started = false;  ///< the session needs it to its own end
  std::atomic<std::thread::id> caller{};
};

}  // namespace pliant::capi

struct pliant_sharded_t : pliant::capi::MakerHandle<pliant::capi::Tag::kSharded> {
  static constexpr const char* kName = "sharded model";
  explicit pliant_sharded_t(std::shared_ptr<pliant::capi::ShardedCore> made) : core(std::move(made)) {}

  const std::shared_ptr<pliant::capi::ShardedCore> core;
};

namespace pliant::capi {

/// A call on a sharded model: throws kFailedPrecondition while another thread's is under way. A thread that has one may
/// make others, as callbacks do.
class ShardedTurn {
 public:
  explicit ShardedTurn(pliant_sharded_t* handle) : core_(given(handle).core) {
    require_own_process(*handle);
    const std::thread::id self = std::this_thread::get_id();
    if (core_->caller.load(std::memory_order_relaxed) != self) {
      std::thread::id none{};
      if (!core_->caller.compare_exchange_strong(none, self, std::memory_order_acquire, std::memory_order_relaxed)) {
        throw Error(Status::kFailedPrecondition, "another thread's call on this sharded model is under way");
      }
      is_outermost_ = true;
    }
    if (core_->model) return;
    end();
    throw Error(Status::kFailedPrecondition, "the session of this sharded model was freed");
  }
  ~ShardedTurn() { end(); }
  ShardedTurn(const ShardedTurn&) = delete;
  ShardedTurn& operator=(const ShardedTurn&) = delete;
  ShardedModel* operator->() const { return &*core_->model; }
  [[nodiscard]] ShardedCore& core() const { return *core_; }

 private:
  void end() {
    if (is_outermost_) core_->caller.store(std::thread::id{}, std::memory_order_release);
  }

  std::shared_ptr<ShardedCore> core_;
  bool is_outermost_ = false;
};

/// Throws kFailedPrecondition while a call on the model is under way.
inline void require_idle(const ShardedCore& core, const char* kept) {
  if (core.caller.load(std::memory_order_acquire) == std::thread::id{}) return;
  throw Error(Status::kFailedPrecondition,
              std::string("this ") + kept + " is not freed: a call on the sharded model is under way");
}

}  // namespace pliant::capi
