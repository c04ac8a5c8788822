// Exceptions of callbacks: kept, rethrown, logged.
#include "raised.hpp"

namespace pliant::python {

namespace {

constexpr Py_ssize_t kMostCharacters = 400;  // of a text that goes to the agent in one line

/// "ValueError: its text".
std::string words_of(const nb::python_error& thrown) {
  auto words = nb::cast<std::string>(nb::str(thrown.type().attr("__name__")));
  try {
    const nb::object text = nb::str(thrown.value());
    const nb::object part = text[nb::slice(nb::int_(0), nb::int_(kMostCharacters), nb::none())];
    const nb::object bytes = part.attr("encode")("utf-8", "replace");
    const auto encoded = nb::borrow<nb::bytes>(bytes);
    if (encoded.size() > 0) words += ": " + std::string(encoded.c_str(), encoded.size());
  } catch (nb::python_error&) {  // NOLINT(bugprone-empty-catch): of __str__; the type must do
  }
  return words;
}

}  // namespace

void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw nb::python_error();
}

std::string RaisedWithin::keep(nb::python_error& thrown) {
  std::string words = words_of(thrown);
  if (!first_) first_.emplace(std::move(thrown));
  return words;
}

void RaisedWithin::rethrow() {
  nb::python_error first = std::move(first_.value());
  clear();
  throw first;
}

void RaisedWithin::throw_behind(const Error& error) {
  if (!first_) throw error;
  const nb::object made = python_error_of(error);
  made.attr("__context__") = first_->value();
  clear();
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  throw nb::python_error();
}

void RaisedWithin::settle() {
  if (!first_) return;
  if (!first_->matches(PyExc_Exception)) rethrow();
  nb::module_::import_("pliant._log").attr("deliver_exception")(first_->value());
  clear();
}

}  // namespace pliant::python
