// pliant._core: core for Python.
#include "bindings.hpp"
#include "failure.hpp"
#include "log.hpp"
#include "process.hpp"

namespace py = pliant::python;

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);  // objects that live to the end of the process are not the user's business
  module.attr("__version__") = PLIANT_VERSION;
  py::bind_failure(module);
  py::bind_process(module);
  py::bind_log(module);
  py::bind_config(module);
  py::bind_plan(module);
  py::bind_batches(module);
  py::bind_micro_batches(module);
  py::bind_balancer(module);
  py::bind_items(module);
  py::bind_learning_rate(module);
  py::bind_ledger(module);
  py::bind_lengths(module);
  py::bind_session(module);
  py::bind_sharded(module);
  py::bind_deepspeed(module);
  py::bind_snapshot(module);
}
