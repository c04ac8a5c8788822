// Which memory is taken, and what is wrong with the rest.
#include "memory.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "arrays.hpp"
#include "raised.hpp"

namespace pliant::python {

namespace {

using Code = nb::dlpack::dtype_code;

struct NamedType {
  std::string_view name;
  DType dtype;
  Code code;
  uint8_t bits;
};

constexpr std::array<NamedType, 9> kTypes{{{"float32", DType::kF32, Code::Float, 32},
                                           {"float64", DType::kF64, Code::Float, 64},
                                           {"float16", DType::kF16, Code::Float, 16},
                                           {"bfloat16", DType::kBF16, Code::Bfloat, 16},
                                           {"int32", DType::kI32, Code::Int, 32},
                                           {"int64", DType::kI64, Code::Int, 64},
                                           {"uint8", DType::kU8, Code::UInt, 8},
                                           {"int8", DType::kU8, Code::Int, 8},
                                           {"bool", DType::kU8, Code::Bool, 8}}};

std::string names_of_types() {
  std::string all;
  for (const NamedType& type : kTypes) all += (all.empty() ? "" : ", ") + std::string(type.name);
  return all;
}

const NamedType* type_of(nb::dlpack::dtype type) {
  const auto* const found = std::find_if(kTypes.begin(), kTypes.end(), [&](const NamedType& known) {
    return static_cast<uint8_t>(known.code) == type.code && known.bits == type.bits && type.lanes == 1;
  });
  return found == kTypes.end() ? nullptr : found;
}

std::string text_from(nb::handle object, const char* name) {
  if (PyUnicode_Check(object.ptr()) == 0)
    raise(PyExc_TypeError, std::string(name) + " is a " + name_of_type(object) + ", not a str");
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (text == nullptr) throw nb::python_error();
  return {text, static_cast<size_t>(size)};
}

const NamedType& type_named(nb::handle dtype, const std::string& of) {
  const std::string name = text_from(dtype, "a dtype");
  const auto* const found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const NamedType& known) { return known.name == name; });
  if (found != kTypes.end()) return *found;
  throw wrong(of + " has the dtype \"" + name + "\"; it must be one of " + names_of_types());
}

/// Rows after each other, without gaps.
template <class Array>
bool is_dense(const Array& array) {
  if (array.size() == 0) return true;  // whatever its strides are: NumPy 2.4 gives 0
  int64_t expected = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != expected) return false;
    expected *= static_cast<int64_t>(array.shape(i));
  }
  return true;
}

/// An array that may be read; `name` as in messages.
nb::ndarray<nb::ro> array_from(nb::handle given, const std::string& name) {
  nb::ndarray<nb::ro> array;
  if (!nb::try_cast(given, array, false) || !array.is_valid()) {
    PyErr_Clear();
    raise(PyExc_TypeError, name + " is a " + name_of_type(given) +
                               ": an array is needed, by the buffer protocol or by DLPack, that asks for no gradient");
  }
  if (!is_dense(array)) {
    raise(PyExc_ValueError, name + " is not dense in row-major order: give one that is contiguous");
  }
  return array;
}

KeptArray writable_from(nb::handle given, const std::string& name) {
  static_cast<void>(array_from(given, name));  // which says what is wrong with it
  KeptArray array;
  if (nb::try_cast(given, array, false) && array.is_valid()) return array;
  PyErr_Clear();
  raise(PyExc_ValueError, name + " may be read only; arrays of the state are written when this worker joins");
}

/// (name, array)
void add_array(NamedArrays& to, std::string name, nb::handle given) {
  const std::string called = "array '" + name + "' of the state";
  KeptArray array = writable_from(given, called);
  const NamedType* const type = type_of(array.dtype());
  if (type == nullptr) {
    raise(PyExc_TypeError,
          called + " has elements of " + dtype_name(array.dtype()) + "; they may be of " + names_of_types());
  }
  StateArray made{std::move(name), type->dtype, {}, array.data()};
  for (size_t i = 0; i < array.ndim(); ++i) made.shape.push_back(static_cast<int64_t>(array.shape(i)));
  to.arrays.push_back(std::move(made));
  to.kept.push_back(std::move(array));
}

/// (name, dtype, shape, place)
void add_place(NamedArrays& to, std::string name, nb::handle dtype, nb::handle shape, nb::handle place) {
  const std::string called = "array '" + name + "' of the state";
  const NamedType& type = type_named(dtype, called);
  StateArray made{std::move(name), type.dtype, {}, nullptr};
  uint64_t bytes = type.bits / 8U;
  for (const nb::handle length : nb::iter(shape)) {
    const uint64_t count = count_from(length, "a length in the shape of " + called);
    if (count != 0 && bytes > UINT64_MAX / 4 / count) throw wrong(called + " has a shape that does not fit memory");
    bytes *= count;
    made.shape.push_back(static_cast<int64_t>(count));
  }
  if (PyLong_Check(place.ptr()) != 0) {
    const uint64_t address = count_from(place, "the address of " + called);
    made.data = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  } else {
    KeptArray array = writable_from(place, called);
    if (array.nbytes() != bytes) {
      throw wrong(called + " has " + std::to_string(bytes) + " bytes by dtype and shape, but its memory has " +
                  std::to_string(array.nbytes()));
    }
    made.data = array.data();
    to.kept.push_back(std::move(array));
  }
  to.arrays.push_back(std::move(made));
}

}  // namespace

uint64_t count_from(nb::handle number, const std::string& name) {
  const nb::object whole = nb::steal(PyNumber_Index(number.ptr()));
  if (!whole.is_valid()) {
    PyErr_Clear();
    raise(PyExc_TypeError, name + " is a " + name_of_type(number) + ", not an int");
  }
  const unsigned long long value = PyLong_AsUnsignedLongLong(whole.ptr());
  if (PyErr_Occurred() == nullptr && value <= INT64_MAX) return value;
  PyErr_Clear();
  raise(PyExc_ValueError, name + " is " + nb::cast<std::string>(nb::str(whole)) + "; it must be 0 to 2^63 - 1");
}

NamedArrays named_arrays_from(nb::handle arrays) {
  NamedArrays made;
  for (const nb::handle one : nb::iter(arrays)) {
    if (PyTuple_Check(one.ptr()) == 0 && PyList_Check(one.ptr()) == 0) {
      raise(PyExc_TypeError, "an array of the state is a " + name_of_type(one) +
                                 ": (name, array) or (name, dtype, shape, place) is needed");
    }
    const nb::tuple parts(nb::borrow(one));
    if (parts.size() == 2) {
      add_array(made, text_from(parts[0], "the name of an array of the state"), parts[1]);
    } else if (parts.size() == 4) {
      add_place(made, text_from(parts[0], "the name of an array of the state"), parts[1], parts[2], parts[3]);
    } else {
      raise(PyExc_TypeError, "an array of the state has " + std::to_string(parts.size()) +
                                 " parts: (name, array) or (name, dtype, shape, place) is needed");
    }
  }
  return made;
}

PieceOfGradient piece_from(nb::handle given, uint64_t offset, nb::handle count, nb::handle dtype, const char* name) {
  PieceOfGradient made;
  made.piece.offset = offset;
  if (PyLong_Check(given.ptr()) != 0) {
    if (count.is_none() || dtype.is_none())
      raise(PyExc_TypeError, std::string(name) + " is an address: count and dtype are needed beside it");
    const uint64_t address = count_from(given, "the address of " + std::string(name));
    made.piece.data = reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr)
    made.piece.count = count_from(count, "count");
    made.piece.dtype = type_named(dtype, name).dtype;
  } else {
    if (!count.is_none() || !dtype.is_none())
      raise(PyExc_TypeError, std::string(name) + " is an array, which has a count and a dtype of its own");
    nb::ndarray<nb::ro> array = array_from(given, name);
    const NamedType* const type = type_of(array.dtype());
    made.piece.data = array.data();
    made.piece.count = array.size();
    made.piece.dtype = type == nullptr ? DType::kU8 : type->dtype;
    const int place = array.device_type();
    made.is_on_host = place == nb::device::cpu::value || place == nb::device::cuda_host::value ||
                      place == nb::device::rocm_host::value;
    if (made.piece.dtype != DType::kF32 && made.piece.dtype != DType::kF16 && made.piece.dtype != DType::kBF16) {
      raise(PyExc_TypeError, std::string(name) + " has elements of " + dtype_name(array.dtype()) +
                                 "; float32, float16 or bfloat16 are needed: convert it, with .astype(\"float32\") or "
                                 "the like");
    }
    made.kept.emplace(std::move(array));
  }
  const DType type = made.piece.dtype;
  if (type != DType::kF32 && type != DType::kF16 && type != DType::kBF16)
    raise(PyExc_TypeError, std::string(name) + " has a dtype that gradients have not: float32, float16 or bfloat16");
  const uintptr_t element = type == DType::kF32 ? sizeof(float) : sizeof(uint16_t);
  if (reinterpret_cast<uintptr_t>(made.piece.data) % element != 0)
    raise(PyExc_ValueError, std::string(name) + " does not begin where an element may: copy it");
  return made;
}

}  // namespace pliant::python
