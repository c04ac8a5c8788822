// OneCaller: calls of a sharded model come one at a time, whichever threads they come from; two at once are refused.
#pragma once

#include <atomic>
#include <thread>

namespace pliant::sharded {

/// Names of calls are those of ShardedModel's functions, literals. Any thread.
class OneCaller {
 public:
  /// Has the model while it lives. Inside one, such as in a callback of the program, the same thread may make others.
  class Call {
   public:
    /// Throws kFailedPrecondition, naming both, while another thread has one.
    Call(OneCaller& of, const char* name);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    OneCaller* of_ = nullptr;  ///< nullptr: inside another
  };

  /// For a call that changes nothing: throws as Call does, and keeps no other out.
  void require_no_other(const char* name) const {
    const char* const other = name_.load(std::memory_order_acquire);
    if (other != nullptr && !is_own()) refuse(name, other);
  }

 private:
  [[nodiscard]] bool is_own() const { return thread_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }
  [[noreturn]] static void refuse(const char* name, const char* other);

  std::atomic<const char*> name_{nullptr};  ///< of the call under way; nullptr: none
  std::atomic<std::thread::id> thread_{};   ///< that makes it; a thread sees its own only while it does
};

inline OneCaller::Call::Call(OneCaller& of, const char* name) {
  if (of.is_own()) return;
  const char* other = nullptr;
  if (!of.name_.compare_exchange_strong(other, name, std::memory_order_acquire, std::memory_order_relaxed)) {
    refuse(name, other);
  }
  of.thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  of_ = &of;
}

inline OneCaller::Call::~Call() {
  if (of_ == nullptr) return;
  of_->thread_.store({}, std::memory_order_relaxed);
  of_->name_.store(nullptr, std::memory_order_release);
}

}  // namespace pliant::sharded
