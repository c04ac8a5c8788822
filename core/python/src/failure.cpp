// Errors of core become those of the package, which are made in Python.
#include "failure.hpp"

#include <string_view>

#include "pliant/exit_code.hpp"

namespace pliant::python {

namespace {

/// A message may quote a path or a value that is no UTF-8; Python keeps such bytes as it does in paths.
nb::object text_of(std::string_view message) {
  nb::object made =
      nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "surrogateescape"));
  if (!made.is_valid()) throw nb::python_error();
  return made;
}

/// Makes errors, in Python.
PyObject* error_maker = nullptr;

}  // namespace

nb::object python_error_of(const Error& error) {
  nb::list findings;
  for (const ConfigFinding& one : error.findings())
    findings.append(nb::make_tuple(text_of(one.place), one.line, one.column, text_of(one.message)));
  return nb::borrow(error_maker)(static_cast<int>(error.status()), static_cast<int>(exit_code_of(error)),
                                 text_of(error.message()), error.options(), error.rank(), error.device(), findings);
}

void bind_failure(nb::module_& /*module*/) {
  // Never released: errors may come until the very end.
  error_maker = nb::object(nb::module_::import_("pliant._errors").attr("_from_core")).release().ptr();
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* /*unused*/) {
        try {
          std::rethrow_exception(thrown);
        } catch (const Error& error) {
          const nb::object made = python_error_of(error);
          PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
        }
      },
      nullptr);
}

}  // namespace pliant::python
