// Work of the library that a fork of the process must not cut in two: a lock of core, of the dynamic loader or of a
// library below it that another thread holds at the fork is held in the child for good, by a thread that is not there.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include <sys/types.h>

namespace pliant {

/// While one lives, a fork by another thread waits for its end, and while a fork is under way, making one waits; both
/// for fork_patience() at most, so that no two threads wait for each other without end. One thread may have several.
class NoFork {
 public:
  /// Throws kFailedPrecondition in a process that was forked while another thread of its parent had one, for what that
  /// thread held is lost.
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
};

/// How long a fork waits for the work of other threads: 10 s, and what a test set.
[[nodiscard]] std::chrono::milliseconds fork_patience() noexcept;
void set_fork_patience(std::chrono::milliseconds patience);

/// A lock of something that a process gets from its parent. One that another thread held at the fork does not keep the
/// child waiting.
class ProcessLock {
 public:
  class Held {
   public:
    /// Takes over what a thread of the parent held at the fork: for what is whole even in the midst of its work.
    explicit Held(ProcessLock& lock) : Held(lock, nullptr) {}
    /// Throws kFailedPrecondition where a thread of the parent held it at the fork. `what`, as in "this planner".
    Held(ProcessLock& lock, const char* what);
    ~Held();
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    ProcessLock& lock_;
  };

 private:
  std::atomic<pid_t> holder_{0};  ///< the process of the thread that has it; 0: nobody
};

/// What is behind `one`, the object of the whole process that `make` returns where there is none yet, as a unique_ptr.
/// A static of a function in its place would be half made for ever in a child that was forked meanwhile. Several
/// threads may make one, of which one stays; it is never destroyed.
template <class T, class Make>
T& made_once(std::atomic<T*>& one, Make&& make) {
  if (T* const known = one.load(std::memory_order_acquire); known != nullptr) return *known;
  auto made = make();
  T* known = nullptr;
  return one.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel) ? *made.release() : *known;
}

}  // namespace pliant
