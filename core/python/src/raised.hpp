// What a program's own code raises when core calls it from within a call of the session.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "failure.hpp"

namespace pliant::python {

/// On its way through core, which takes it for an exception of the program's: it is none of Pliant's errors.
class Raised final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Raises one of Python's own exceptions.
[[noreturn]] void raise(PyObject* type, const std::string& message);

/// What is raised within one call of the session. The first one is kept; core may turn it into words, or into the
/// reason why a snapshot is not written, and the call goes on.
class RaisedWithin {
 public:
  /// Runs `work` with the lock of the interpreter. Throws Raised for what it raises, with its type and text.
  template <class Work>
  auto run(Work&& work) {
    const GilAcquired acquired;
    try {
      return calling_python(std::forward<Work>(work));
    } catch (nb::python_error& thrown) {
      throw Raised(keep(thrown));
    }
  }

  // With the lock.

  void clear() { first_.reset(); }
  /// The call ends with Raised: the exception comes out as it was.
  [[noreturn]] void rethrow();
  /// The call ends with `error`, which comes out, and has what was raised before as its context.
  [[noreturn]] void throw_behind(const Error& error);
  /// The call ends well: what was raised is logged; what asks the program to end, such as KeyboardInterrupt, comes out.
  void settle();

 private:
  std::string keep(nb::python_error& thrown);
  std::optional<nb::python_error> first_;
};

}  // namespace pliant::python
