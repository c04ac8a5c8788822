// What the module shares with the whole process: the lock of the interpreter, forks, the end of the process.
#pragma once

#include <cxxabi.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "log.hpp"
#include "nanobind.hpp"
#include "pliant/error.hpp"

namespace pliant::python {

/// Forks that lie between this process and the one that imported the module.
[[nodiscard]] uint64_t forks() noexcept;

/// The lock of the interpreter, given back for a while. A thread that comes back while the process ends stays away: the
/// interpreter would end it in the midst of C++.
class GilReleased {
 public:
  GilReleased() noexcept;
  ~GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

/// The lock of the interpreter, for a thread that may be one of C++. As above, it stays away while the process ends.
class GilAcquired {
 public:
  GilAcquired() noexcept;
  ~GilAcquired();
  GilAcquired(const GilAcquired&) = delete;
  GilAcquired& operator=(const GilAcquired&) = delete;

 private:
  PyGILState_STATE state_{};
  bool is_new_ = false;  ///< the interpreter knows this thread through this object alone
};

/// Waits until the process has ended.
[[noreturn]] void stay_away() noexcept;

/// What `work` returns, which calls Python. An interpreter that ends has every other thread exit that comes back for
/// the lock in there; the C++ below cannot be unwound without the lock, so that the thread stays away instead.
template <class Work>
auto calling_python(Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const abi::__forced_unwind&) {
    stay_away();
  }
}

/// What `work` returns, which runs without the lock of the interpreter and touches no Python object. Log lines of it
/// are delivered when it returns.
template <class Work>
auto without_gil(Work&& work) {
  const LogDelivery delivered_last;
  const GilReleased released;
  return std::forward<Work>(work)();
}

/// Of an object that serves one call at a time, in the process that made it.
struct Serial {
  std::atomic<bool> is_busy{false};
  uint64_t made_in = forks();

  [[nodiscard]] bool is_of_another_process() const noexcept { return made_in != forks(); }
};

/// A call on such an object: throws kFailedPrecondition where another one is under way, or for one of the process that
/// this one was forked from. `name` as in "this <name>".
class Turn {
 public:
  Turn(Serial& of, const char* name);
  ~Turn() { of_.is_busy.store(false, std::memory_order_release); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Serial& of_;
};

void bind_process(nb::module_& module);

}  // namespace pliant::python
