// Log lines on their way to Python's logging.
#pragma once

#include "nanobind.hpp"

namespace pliant::python {

/// Hands over the lines that came so far, at its end. With the lock of the interpreter.
class LogDelivery {
 public:
  LogDelivery() noexcept;
  ~LogDelivery();
  LogDelivery(const LogDelivery&) = delete;
  LogDelivery& operator=(const LogDelivery&) = delete;
};

void bind_log(nb::module_& module);

}  // namespace pliant::python
