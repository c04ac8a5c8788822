// The first run of a data set without lengths, and files of lengths, for Python.
#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <thread>
#include <tuple>

#include "arrays.hpp"
#include "bindings.hpp"
#include "failure.hpp"
#include "pliant/analyse_lengths.hpp"

namespace pliant::python {

namespace {

constexpr auto kLook = std::chrono::milliseconds(50);  // between two looks for a Ctrl-C

/// The analysis runs in threads that wait for the lock of the interpreter whenever they measure; the caller's thread
/// has nothing to do but to look for interrupts, which reach it alone.
AnalysedLengths analysed(const std::string& file, const LengthAnalysis& analysis, std::atomic<bool>& is_interrupted) {
  auto under_way = std::async(std::launch::async, [&] { return analyse_lengths(file, analysis); });
  std::exception_ptr interrupt;
  for (;;) {
    bool is_done = false;
    {
      const GilReleased released;
      is_done = under_way.wait_for(kLook) == std::future_status::ready;
    }
    if (is_done) break;
    if (!interrupt && PyErr_CheckSignals() != 0) {
      interrupt = std::make_exception_ptr(nb::python_error());
      is_interrupted = true;  // the next length is not measured
    }
  }
  if (interrupt) {
    try {
      static_cast<void>(under_way.get());
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the interrupt ended it
    }
    std::rethrow_exception(interrupt);
  }
  return under_way.get();
}

int64_t whole_number(const nb::object& value) {
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  const int64_t number = PyLong_AsLongLong(index.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return number;
}

std::tuple<int64_t, int64_t> analyse(const nb::object& file, int64_t count, const nb::object& length_of,
                                     const std::string& identity, int64_t threads,
                                     const std::optional<nb::object>& progress) {
  const std::string path = path_from(file).string();
  Callback callback;
  std::atomic<bool> is_interrupted{false};
  LengthAnalysis analysis;
  analysis.count = count;
  analysis.identity = identity;
  analysis.threads = threads;
  analysis.length_of = [&](int64_t i) {
    if (is_interrupted) throw Error(Status::kAborted, "interrupted");
    return callback.run([&] { return whole_number(length_of(i)); });
  };
  if (progress) {
    analysis.progress = [&](int64_t done, int64_t total) {
      if (is_interrupted) return;
      callback.run([&] { static_cast<void>((*progress)(done, total)); });
    };
  }
  try {
    const AnalysedLengths made = analysed(path, analysis, is_interrupted);
    return {made.measured, made.resumed};
  } catch (const Error&) {
    callback.rethrow();
    throw;
  }
}

}  // namespace

void bind_lengths(nb::module_& module) {
  using namespace nb::literals;
  module.def("analyse_lengths", &analyse, "file"_a, "count"_a, "length_of"_a, nb::kw_only(), "identity"_a,
             "threads"_a = 1, "progress"_a = nb::none());
  module.def(
      "_check_lengths",
      [](const AnyArray& array, const std::string& name) { static_cast<void>(lengths_from(array, name.c_str())); },
      "array"_a, "name"_a);
  module.def(
      "read_lengths",
      [](const nb::object& file, const std::string& column) {
        const std::string path = path_from(file).string();
        auto* const kept = new Lengths(without_gil([&] { return read_lengths(path, column); }));
        return nb::ndarray<nb::numpy, const int32_t, nb::ndim<1>>(kept->data(), {kept->size()}, owner_of(kept));
      },
      "file"_a, "column"_a = "length");
}

}  // namespace pliant::python
