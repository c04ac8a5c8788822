// The handlers of forks, and how many threads are in the midst of something.
#include "base/no_fork.hpp"

#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "pliant/error.hpp"

namespace pliant {
namespace {

struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  std::chrono::milliseconds patience{10000};
  int64_t inside = 0;   ///< threads that have a NoFork
  int64_t forks = 0;    ///< under way
  bool is_cut = false;  ///< this process was forked while another thread was inside
};

thread_local int64_t own_no_forks = 0;  // NoForks of this thread

constinit std::atomic<Gate*> made_gate{nullptr};

/// What this thread itself has does not keep it from forking.
int64_t others_inside(const Gate& gate) {
  return gate.inside - (own_no_forks > 0 ? 1 : 0);
}

void before_fork() noexcept {
  Gate* const gate = made_gate.load(std::memory_order_acquire);
  if (gate == nullptr) return;
  std::unique_lock lock(gate->mutex);
  ++gate->forks;
  gate->changed.wait_for(lock, gate->patience, [gate] { return others_inside(*gate) == 0; });
}

void after_fork() noexcept {
  Gate* const gate = made_gate.load(std::memory_order_acquire);
  if (gate == nullptr) return;
  {
    const std::lock_guard lock(gate->mutex);
    if (gate->forks > 0) --gate->forks;
  }
  gate->changed.notify_all();
}

/// In the child, where this thread is the only one: what others held of the gate is made anew.
void after_fork_in_child() noexcept {
  Gate* const gate = made_gate.load(std::memory_order_acquire);
  if (gate == nullptr) return;
  new (&gate->mutex) std::mutex;
  new (&gate->changed) std::condition_variable;
  gate->is_cut = gate->is_cut || others_inside(*gate) > 0;
  gate->inside = own_no_forks > 0 ? 1 : 0;
  gate->forks = 0;
}

Gate& gate() {
  return made_once(made_gate, [] {
    // Before anybody is inside. Two threads that meet here register twice, which does no harm.
    if (::pthread_atfork(&before_fork, &after_fork, &after_fork_in_child) != 0) throw std::bad_alloc();
    return std::make_unique<Gate>();
  });
}

}  // namespace

NoFork::NoFork() {
  Gate& one = gate();
  if (own_no_forks == 0) {
    std::unique_lock lock(one.mutex);
    if (one.is_cut) {
      throw Error(
          Status::kFailedPrecondition,
          "this process was forked while another thread of its parent opened or closed a plugin, and here the locks of "
          "that thread stay locked: fork when no such call is under way, or start processes by exec, as Python does "
          "with \"spawn\"");
    }
    one.changed.wait_for(lock, one.patience, [&one] { return one.forks == 0; });
    ++one.inside;
  }
  ++own_no_forks;
}

NoFork::~NoFork() {
  if (--own_no_forks > 0) return;
  Gate& one = gate();
  {
    const std::lock_guard lock(one.mutex);
    --one.inside;
  }
  one.changed.notify_all();
}

std::chrono::milliseconds fork_patience() noexcept {
  Gate& one = gate();
  const std::lock_guard lock(one.mutex);
  return one.patience;
}

void set_fork_patience(std::chrono::milliseconds patience) {
  Gate& one = gate();
  const std::lock_guard lock(one.mutex);
  one.patience = patience;
}

ProcessLock::Held::Held(ProcessLock& lock, const char* what) : lock_(lock) {
  const pid_t self = ::getpid();
  for (pid_t holder = 0; !lock_.holder_.compare_exchange_weak(holder, self, std::memory_order_acquire);) {
    if (holder == self) {
      lock_.holder_.wait(holder, std::memory_order_relaxed);
      holder = 0;
    } else if (holder != 0 && what != nullptr) {
      throw Error(Status::kFailedPrecondition, std::string("this ") + what +
                                                   " was in use by another thread when this process was forked: make "
                                                   "another one here");
    }
  }
}

ProcessLock::Held::~Held() {
  lock_.holder_.store(0, std::memory_order_release);
  lock_.holder_.notify_one();
}

}  // namespace pliant
