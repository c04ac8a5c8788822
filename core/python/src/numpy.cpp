// Views by the C interface of numpy. nanobind makes them through the buffer protocol, which takes 4,700 instructions of
// code that each step of a session meets once, and so finds in no cache; these take 600.
#include "numpy.hpp"

#include <optional>

namespace pliant::python {

namespace {

// The places of functions in numpy's table, which are the same in 1.x and 2.x, and what else its headers say. Neither
// is built against: one module serves both.
constexpr size_t kPlaceOfVersion = 0;
constexpr size_t kPlaceOfArrayType = 2;
constexpr size_t kPlaceOfTypeFrom = 45;
constexpr size_t kPlaceOfNew = 93;
constexpr size_t kPlaceOfSetBase = 282;
constexpr unsigned kVersion1 = 0x01000009;
constexpr unsigned kVersion2 = 0x02000000;
constexpr int kContiguousAndAligned = 0x0101;
constexpr int kWritable = 0x0400;

/// An array begins with this in 1.x and 2.x.
struct Array {
  PyObject_HEAD char* data;
  int dimensions;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  PyObject* base;
  PyObject* element_type;
  int flags;
};

using VersionOf = unsigned (*)();
using TypeFrom = PyObject* (*)(int);
/// (type, dimensions, shape, code, strides, data, bytes of an element, flags, another array)
using New = PyObject* (*)(PyObject*, int, const Py_ssize_t*, int, const Py_ssize_t*, void*, int, int, PyObject*);
/// Takes the reference to `base`, also where it fails.
using SetBase = int (*)(PyObject* array, PyObject* base);

struct Numpy {
  PyObject* type = nullptr;     ///< of arrays; NULL: a version that is not known
  PyObject* float32 = nullptr;  ///< the one object that arrays of native float32 have as the type of their elements
  New make = nullptr;
  SetBase set_base = nullptr;
};

Numpy loaded() {
  nb::object module;
  try {
    module = nb::module_::import_("numpy._core._multiarray_umath");
  } catch (nb::python_error& failure) {
    if (!failure.matches(PyExc_ImportError)) throw;
    module = nb::module_::import_("numpy.core._multiarray_umath");  // before 1.26
  }
  const nb::object capsule = module.attr("_ARRAY_API");
  auto** const table = static_cast<void**>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (table == nullptr) throw nb::python_error();
  const unsigned version = reinterpret_cast<VersionOf>(table[kPlaceOfVersion])();
  if (version != kVersion1 && version != kVersion2) return {};
  PyObject* const float32 = reinterpret_cast<TypeFrom>(table[kPlaceOfTypeFrom])(kNumpyCode<float>);
  if (float32 == nullptr) throw nb::python_error();
  return {static_cast<PyObject*>(table[kPlaceOfArrayType]), float32, reinterpret_cast<New>(table[kPlaceOfNew]),
          reinterpret_cast<SetBase>(table[kPlaceOfSetBase])};
}

std::optional<Numpy> known;  // once an array was made; under the lock of the interpreter

}  // namespace

std::optional<std::span<const float>> floats_of(nb::handle array) {
  if (!known || array.type().ptr() != known->type) return std::nullopt;
  const auto& fields = *reinterpret_cast<const Array*>(array.ptr());
  if (fields.element_type != known->float32 || (fields.flags & kContiguousAndAligned) != kContiguousAndAligned)
    return std::nullopt;
  size_t count = 1;
  for (int i = 0; i < fields.dimensions; ++i) count *= static_cast<size_t>(fields.shape[i]);
  return std::span(reinterpret_cast<const float*>(fields.data), count);
}

nb::object numpy_view(int code, void* data, size_t count, bool writable, nb::handle owner) {
  // No `static` in here: a thread that waits for another one's import would keep the lock that this one needs.
  if (!known) known = loaded();
  const Numpy& numpy = *known;
  if (numpy.type == nullptr) return {};
  const auto size = static_cast<Py_ssize_t>(count);
  const int flags = kContiguousAndAligned | (writable ? kWritable : 0);
  // numpy would take memory of its own for NULL, which an empty span may be.
  static char nothing = 0;
  PyObject* const made =
      numpy.make(numpy.type, 1, &size, code, nullptr, data == nullptr ? &nothing : data, 0, flags, nullptr);
  if (made == nullptr) throw nb::python_error();
  nb::object view = nb::steal(made);
  if (numpy.set_base(made, owner.inc_ref().ptr()) != 0) throw nb::python_error();
  return view;
}

}  // namespace pliant::python
