// Lines come from any thread, which may or may not have the lock of the interpreter: they are laid aside, and handed
// over by the call that they belong to, or else by the main thread.
#include "pliant/log.hpp"

#include <atomic>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include <pthread.h>

#include "log.hpp"
#include "process.hpp"

namespace pliant::python {

namespace {

thread_local int calls_of_this_thread = 0;  // that hand over what it lays aside

constexpr size_t kMostLines = 10000;  // of a program whose main thread has no time for them

struct LogLine {
  LogLevel level = LogLevel::kInfo;
  std::string logger;
  std::string text;
};

struct Lines {
  std::mutex mutex;
  std::vector<LogLine> waiting;
  size_t dropped = 0;
  bool is_asked = false;  // the main thread was asked to take them
  std::atomic<bool> has_some{false};
};

Lines& lines() {
  static Lines& one = *new Lines;  // never destroyed: others may log while the process ends
  return one;
}

/// Hands over what waits. False with a Python error set.
bool deliver() {
  Lines& all = lines();
  std::vector<LogLine> taken;
  size_t dropped = 0;
  {
    const std::lock_guard lock(all.mutex);
    taken.swap(all.waiting);
    std::swap(dropped, all.dropped);
    all.is_asked = false;
    all.has_some = false;
  }
  try {
    if (dropped > 0) taken.push_back({LogLevel::kWarning, "log", std::to_string(dropped) + " lines were dropped"});
    const nb::object to = nb::module_::import_("pliant._log").attr("deliver");
    for (const LogLine& line : taken) {
      to(static_cast<int>(line.level), nb::str(line.logger.data(), line.logger.size()),
         nb::steal(PyUnicode_DecodeUTF8(line.text.data(), static_cast<Py_ssize_t>(line.text.size()), "replace")));
    }
  } catch (nb::python_error& failure) {
    failure.restore();
    return false;
  }
  return true;
}

int deliver_from_main_thread(void* /*unused*/) {
  return deliver() ? 0 : -1;
}

void lay_aside(LogLevel level, std::string_view logger, std::string_view text) {
  Lines& all = lines();
  const std::lock_guard lock(all.mutex);
  if (all.waiting.size() >= kMostLines) {
    ++all.dropped;
    return;
  }
  all.waiting.push_back({level, std::string(logger), std::string(text)});
  all.has_some = true;
  // Python 3.11 looks at the state of whatever thread has the lock, which may end meanwhile: only where it must be
  // asked.
  if (!all.is_asked && calls_of_this_thread == 0)
    all.is_asked = Py_AddPendingCall(&deliver_from_main_thread, nullptr) == 0;
}

}  // namespace

LogDelivery::LogDelivery() noexcept {
  ++calls_of_this_thread;
}

LogDelivery::~LogDelivery() {
  --calls_of_this_thread;
  if (!lines().has_some.load() || calling_python(&deliver)) return;
  // What a handler of the program throws is not the business of the call; but an interrupt is raised once more.
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) == 0) {
    PyErr_WriteUnraisable(nullptr);
    return;
  }
  PyErr_Clear();
  PyErr_SetInterrupt();
}

void bind_log(nb::module_& module) {
  set_log_sink(&lay_aside, LogLevel::kInfo);
  ::pthread_atfork([] { lines().mutex.lock(); }, [] { lines().mutex.unlock(); },
                   [] {
                     Lines& all = lines();
                     all.waiting.clear();  // the parent hands them over
                     all.is_asked = false;
                     all.has_some = false;
                     all.mutex.unlock();
                   });
  module.def(
      "_set_log_level", [](int least) { set_log_sink(&lay_aside, static_cast<LogLevel>(least)); }, nb::arg("least"));
  // Nothing is handed over while the interpreter ends.
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] { set_log_sink({}); }));
}

}  // namespace pliant::python
