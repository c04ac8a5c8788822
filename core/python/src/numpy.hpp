// Arrays of numpy over memory that another object keeps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "nanobind.hpp"

namespace pliant::python {

/// Numbers of numpy that views are made of, with the codes that it has for them.
template <class Number>
inline constexpr int kNumpyCode = -1;
template <>
inline constexpr int kNumpyCode<int64_t> = 7;  // NPY_LONG, of 64 bits on Linux
template <>
inline constexpr int kNumpyCode<float> = 11;  // NPY_FLOAT

/// An array of numpy made by its C interface: one-dimensional, over `data`, which `owner` keeps. No object where numpy
/// has another one than those that are known. Throws ImportError where there is no numpy.
nb::object numpy_view(int code, void* data, size_t count, bool writable, nb::handle owner);

/// What an array of numpy holds, in row-major order, where it is of float32, dense and aligned. None for another array,
/// for another object and where numpy is one that is not known. The array keeps it.
std::optional<std::span<const float>> floats_of(nb::handle array);

/// An array of numpy over `values`, which `owner` keeps; read-only where they are const.
template <class Number>
nb::object view_of(std::span<Number> values, nb::handle owner) {
  using Plain = std::remove_const_t<Number>;
  static_assert(kNumpyCode<Plain> >= 0);
  void* const data = const_cast<Plain*>(values.data());
  nb::object made = numpy_view(kNumpyCode<Plain>, data, values.size(), !std::is_const_v<Number>, owner);
  if (made.is_valid()) return made;
  return nb::cast(nb::ndarray<nb::numpy, Number, nb::ndim<1>>(values.data(), {values.size()}, owner));
}
/// The same numbers: none is 2^63 or more.
inline nb::object view_of(std::span<const uint64_t> values, nb::handle owner) {
  return view_of(std::span(reinterpret_cast<const int64_t*>(values.data()), values.size()), owner);
}

}  // namespace pliant::python
