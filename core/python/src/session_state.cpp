// What a program in Python brings to a job: its own methods, called from within core.
#include <istream>
#include <iterator>
#include <ostream>

#include "arrays.hpp"
#include "session.hpp"

namespace pliant::python {

namespace {

constexpr uint64_t kMostElements = uint64_t{1} << 58U;

nb::object method_or_none(const nb::object& program, const char* name) {
  const nb::object found = nb::getattr(program, name, nb::none());
  return found.is_none() ? nb::object() : found;
}

uint64_t gradient_size_of(const nb::object& program) {
  if (!nb::hasattr(program, "gradient_size") || !nb::hasattr(program, "arrays")) {
    raise(PyExc_TypeError,
          "state is a " + name_of_type(program) + " without gradient_size or arrays: see pliant.elastic.TrainingState");
  }
  const uint64_t size = count_from(program.attr("gradient_size"), "gradient_size of the state");
  if (size <= kMostElements) return size;
  throw wrong("gradient_size of the state is " + std::to_string(size) + "; no memory holds as many elements");
}

std::string gradient_layout_of(const nb::object& program) {
  const nb::object found = nb::getattr(program, "gradient_layout", nb::none());
  if (found.is_none()) return {};
  if (!nb::isinstance<nb::str>(found))
    raise(PyExc_TypeError, "gradient_layout of the state is a " + name_of_type(found) + ", not a str");
  return nb::cast<std::string>(found);
}

}  // namespace

PyState::PyState(nb::object program, RaisedWithin& raised)
    : program_(std::move(program)),
      save_(method_or_none(program_, "save")),
      load_(method_or_none(program_, "load")),
      raised_(raised),
      gradient_size_(gradient_size_of(program_)),
      gradient_layout_(gradient_layout_of(program_)),
      named_(named_arrays_from(program_.attr("arrays")())) {
  if (save_.is_valid() != load_.is_valid()) throw wrong("state has save or load, not both");
}

void PyState::save(std::ostream& out) const {
  if (!save_.is_valid()) return;
  // Without the lock the bytes may be read: nothing changes bytes.
  nb::object saved;
  const auto text = raised_.run([&] {
    saved = save_();
    if (!nb::isinstance<nb::bytes>(saved))
      raise(PyExc_TypeError, "save of the state returned a " + name_of_type(saved) + ", not bytes");
    const auto bytes = nb::borrow<nb::bytes>(saved);
    return std::string_view(bytes.c_str(), bytes.size());
  });
  try {
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
  } catch (...) {
    const GilAcquired acquired;
    saved.reset();
    throw;
  }
  const GilAcquired acquired;
  saved.reset();
}

void PyState::load(std::istream& in) {
  if (!load_.is_valid()) return;
  const std::string given{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  raised_.run([&] {
    const nb::object used = load_(nb::bytes(given.data(), given.size()));
    const uint64_t read = used.is_none() ? given.size() : count_from(used, "what load of the state returned");
    if (read == given.size()) return;
    const nb::object failure = python_error_of(
        Error(Status::kDataLoss, "load of the state understood " + std::to_string(read) + " of the " +
                                     std::to_string(given.size()) + " bytes that save gave; it must take all of them"));
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(failure.ptr())), failure.ptr());
    throw nb::python_error();
  });
}

void PyState::renew_arrays() {
  NamedArrays made = named_arrays_from(program_.attr("arrays")());
  const auto is_same = [](const StateArray& one, const StateArray& other) {
    return one.name == other.name && one.dtype == other.dtype && one.shape == other.shape;
  };
  if (!std::equal(made.arrays.begin(), made.arrays.end(), named_.arrays.begin(), named_.arrays.end(), is_same)) {
    throw Error(Status::kFailedPrecondition,
                "the state has other arrays than at Session.start: names, types and shapes must stay");
  }
  named_ = std::move(made);
}

}  // namespace pliant::python
