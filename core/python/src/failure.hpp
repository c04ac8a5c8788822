// pliant::Error as pliant.Error.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "nanobind.hpp"
#include "pliant/error.hpp"
#include "process.hpp"

namespace pliant::python {

/// A wrong argument of a call: the program is wrong, not its user's config.
[[nodiscard]] inline Error wrong(std::string message) {
  return {Status::kInvalidArgument, std::move(message)};
}

/// `error` as pliant.Error. With the lock of the interpreter.
[[nodiscard]] nb::object python_error_of(const Error& error);

/// Core calls Python and turns what is thrown into words of its own. Kept here it comes out as it was.
class Callback {
 public:
  /// Runs `work` with the lock of the interpreter.
  template <class Work>
  auto run(Work&& work) {
    const GilAcquired acquired;
    try {
      return calling_python(std::forward<Work>(work));
    } catch (nb::python_error& thrown) {
      if (!first_) first_ = std::make_exception_ptr(thrown);
      throw Error(Status::kAborted, thrown.what());
    }
  }
  /// Throws what the first of them threw. With the lock.
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

void bind_failure(nb::module_& module);

}  // namespace pliant::python
