// Forks, the end of the process, and one call at a time.
#include "process.hpp"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <thread>

namespace pliant::python {

namespace {

std::atomic<uint64_t> forks_seen{0};

/// Threads that come back for the lock, and whether it is still given to them.
struct Returns {
  std::atomic<bool> is_over{false};
  std::atomic<int64_t> under_way{0};
  std::thread::id ending;  // the thread that ends the process; written before is_over
};

Returns& returns() {
  static Returns& one = *new Returns;  // never destroyed: threads may come back until the very end
  return one;
}

/// Threads of C++ that the interpreter gets to know. It takes a mutex of its own then, without its lock, and
/// Python 3.11 waits for that mutex in a child that was forked meanwhile, without end: no fork of Python happens in the
/// midst of it. Python 3.13 has taken its mutex by the time that pthread_atfork's handlers are called, so that `mutex`
/// is taken before, by a handler of Python.
struct Newcomers {
  std::mutex mutex;
  PyInterpreterState* interpreter = nullptr;
};

Newcomers& newcomers() {
  static Newcomers& one = *new Newcomers;  // never destroyed, as above
  return one;
}

[[nodiscard]] bool stays_away() {
  const Returns& all = returns();
  return all.is_over.load() && std::this_thread::get_id() != all.ending;
}

/// Has `take` wait for the lock and take it.
template <class Take>
void come_back(Take&& take) noexcept {
  Returns& all = returns();
  all.under_way.fetch_add(1);
  if (stays_away()) {
    all.under_way.fetch_sub(1);
    stay_away();
  }
  take();
  all.under_way.fetch_sub(1);
}

/// Called by atexit, before the interpreter begins to end: threads that wait for the lock by now still get it, later
/// ones do not.
void end_returns() {
  Returns& all = returns();
  all.ending = std::this_thread::get_id();
  all.is_over.store(true);
  while (all.under_way.load() != 0) {
    const nb::gil_scoped_release released;
    std::this_thread::yield();
  }
}

}  // namespace

uint64_t forks() noexcept {
  return forks_seen.load(std::memory_order_relaxed);
}

GilReleased::GilReleased() noexcept : state_(PyEval_SaveThread()) {}

GilReleased::~GilReleased() {
  come_back([this] { PyEval_RestoreThread(state_); });
}

GilAcquired::GilAcquired() noexcept {
  come_back([this] {
    if (PyGILState_GetThisThreadState() == nullptr) {
      const std::lock_guard lock(newcomers().mutex);
      is_new_ = PyThreadState_New(newcomers().interpreter) != nullptr;
    }
    state_ = PyGILState_Ensure();
  });
}

GilAcquired::~GilAcquired() {
  if (is_new_)
    PyGILState_Release(PyGILState_LOCKED);  // what PyThreadState_New counts; the next call forgets the thread
  PyGILState_Release(state_);
}

void stay_away() noexcept {
  for (;;) ::pause();
}

Turn::Turn(Serial& of, const char* name) : of_(of) {
  if (of.is_of_another_process()) {
    throw Error(Status::kFailedPrecondition, std::string("this ") + name +
                                                 " was made before a fork and belongs to the parent process: make "
                                                 "another one here, or start processes with \"spawn\"");
  }
  if (of.is_busy.exchange(true, std::memory_order_acquire)) {
    throw Error(Status::kFailedPrecondition, std::string("another call on this ") + name + " is under way");
  }
}

void bind_process(nb::module_& module) {
  newcomers().interpreter = PyInterpreterState_Get();
  ::pthread_atfork(nullptr, nullptr, [] {
    forks_seen.fetch_add(1);
    returns().under_way.store(0);
  });
  using namespace nb::literals;
  const nb::object unlock = nb::cpp_function([] { newcomers().mutex.unlock(); });
  nb::module_::import_("os").attr("register_at_fork")("before"_a = nb::cpp_function([] { newcomers().mutex.lock(); }),
                                                      "after_in_parent"_a = unlock, "after_in_child"_a = unlock);
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&end_returns));
  module.def("_forks", &forks);
}

}  // namespace pliant::python
