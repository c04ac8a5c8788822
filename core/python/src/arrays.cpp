// Which arrays are taken, which are viewed in place, and what is wrong with the others.
#include "arrays.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "failure.hpp"
#include "process.hpp"

namespace pliant::python {

namespace {

using Imported = nb::ndarray<nb::ro>;

[[noreturn]] void refuse_type(const std::string& message) {
  throw nb::type_error(message.c_str());
}

/// Whether the CPU reads the memory of a device of this number.
bool is_host(int device) {
  return device == nb::device::cpu::value || device == nb::device::cuda_host::value ||
         device == nb::device::rocm_host::value;
}

/// torch resizes the memory of a tensor under those that view it by DLPack, but not where numpy views it.
nb::object held_in_place(const nb::object& given) {
  if (!nb::hasattr(given, "resize_") || !nb::hasattr(given, "numpy")) return given;
  try {
    return given.attr("numpy")();
  } catch (const nb::python_error&) {
    return given;  // of a type that numpy has not
  }
}

/// Whether `array` says of itself, by DLPack, that it lies on a device that is not the CPU. It is asked first: an
/// import may copy, or fail with other words.
bool is_on_device(nb::handle array) {
  if (!nb::hasattr(array, "__dlpack_device__")) return false;
  const nb::object place = array.attr("__dlpack_device__")();
  return !is_host(nb::cast<int>(nb::int_(nb::object(place[0]))));
}

/// Which numbers an array may hold.
enum class Numbers { kIntegers, kAll };

/// A sequence of int, such as a list, as an array of 64 bits; of float where those are taken.
nb::object array_of_sequence(nb::handle sequence, const char* name, Numbers numbers) {
  try {
    return nb::module_::import_("array").attr("array")(numbers == Numbers::kAll ? "d" : "q", sequence);
  } catch (nb::python_error& failure) {
    if (failure.matches(PyExc_OverflowError)) {
      throw Error(Status::kOutOfRange, std::string(name) + " has a value beyond 64 bits");
    }
    if (!failure.matches(PyExc_TypeError)) throw;
  }
  refuse_type(std::string(name) + " is a " + name_of_type(sequence) + " that does not hold " +
              (numbers == Numbers::kAll ? "numbers" : "int") + " alone");
}

Imported imported(const AnyArray& given, const char* name, Numbers numbers = Numbers::kIntegers) {
  if (is_on_device(given)) {
    refuse_type(std::string(name) + " lies on a device: copy it to the CPU first, with .cpu() or the like");
  }
  nb::object array = held_in_place(given);
  const bool is_sequence = PyList_Check(given.ptr()) || PyTuple_Check(given.ptr()) || PyRange_Check(given.ptr());
  if (is_sequence) array = array_of_sequence(given, name, numbers);
  Imported made;
  if (!nb::try_cast(array, made) || !made.is_valid()) {
    PyErr_Clear();
    refuse_type(std::string(name) + " is a " + name_of_type(given) +
                ": an array of integers is needed, by the buffer protocol or by DLPack, in this machine's byte order");
  }
  if (!is_host(made.device_type())) {
    refuse_type(std::string(name) + " lies on a device: copy it to the CPU first");
  }
  if (made.ndim() != 1) {
    refuse_type(std::string(name) + " has " + std::to_string(made.ndim()) + " dimensions; one is needed");
  }
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(made.dtype().code);
  const auto bits = made.dtype().bits;
  const bool is_integer = (code == Code::Int || code == Code::UInt) && made.dtype().lanes == 1 &&
                          (bits == 8 || bits == 16 || bits == 32 || bits == 64);
  const bool is_real = code == Code::Float && made.dtype().lanes == 1 && (bits == 32 || bits == 64);
  if (!is_integer && !(is_real && numbers == Numbers::kAll)) {
    refuse_type(std::string(name) + " has values of " + dtype_name(made.dtype()) +
                "; integers are needed: convert it, with .astype(\"int32\") or the like");
  }
  return made;
}

template <class Value, class To>
void copy_values(const Imported& array, std::vector<To>& to, const char* name) {
  const auto* const from = static_cast<const unsigned char*>(static_cast<const void*>(array.data()));
  const int64_t stride = array.ndim() == 1 && array.size() > 0 ? array.stride(0) : 1;
  for (size_t i = 0; i < array.size(); ++i) {
    Value value{};
    std::memcpy(&value, from + static_cast<int64_t>(i) * stride * static_cast<int64_t>(sizeof(Value)), sizeof(value));
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): an int8_t is a number here
    if (!std::in_range<To>(value)) {
      throw Error(Status::kOutOfRange, std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(value) +
                                           ", which does not fit " + std::to_string(8 * sizeof(To)) + " bits");
    }
    to[i] = static_cast<To>(value);  // NOLINT(bugprone-signed-char-misuse): as above
  }
}

template <class To>
std::vector<To> copied(const Imported& array, const char* name) {
  std::vector<To> made(array.size());
  const bool is_signed = static_cast<nb::dlpack::dtype_code>(array.dtype().code) == nb::dlpack::dtype_code::Int;
  without_gil([&] {
    switch (array.dtype().bits) {
      case 8:
        return is_signed ? copy_values<int8_t>(array, made, name) : copy_values<uint8_t>(array, made, name);
      case 16:
        return is_signed ? copy_values<int16_t>(array, made, name) : copy_values<uint16_t>(array, made, name);
      case 32:
        return is_signed ? copy_values<int32_t>(array, made, name) : copy_values<uint32_t>(array, made, name);
      default:
        return is_signed ? copy_values<int64_t>(array, made, name) : copy_values<uint64_t>(array, made, name);
    }
  });
  return made;
}

/// `array` as int32 where it is; nullopt where it has to be copied, or refused. A uint32 below 2^31 is the same int32.
std::optional<std::span<const int32_t>> viewed(const Imported& array) {
  const bool is_unsigned = array.dtype() == nb::dtype<uint32_t>();
  const bool is_dense = array.size() < 2 || array.stride(0) == 1;
  const bool is_aligned = reinterpret_cast<uintptr_t>(array.data()) % alignof(int32_t) == 0;
  if (!is_dense || !is_aligned || !(is_unsigned || array.dtype() == nb::dtype<int32_t>())) return std::nullopt;
  const std::span values(static_cast<const int32_t*>(static_cast<const void*>(array.data())), array.size());
  const auto has_large = [&] { return std::any_of(values.begin(), values.end(), [](int32_t v) { return v < 0; }); };
  if (is_unsigned && without_gil(has_large)) return std::nullopt;
  return values;
}

}  // namespace

std::string name_of_type(nb::handle object) {
  return nb::cast<std::string>(nb::str(object.type().attr("__name__")));
}

std::string dtype_name(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(type.code);
  std::string name = "other";
  if (code == Code::Int) name = "int";
  if (code == Code::UInt) name = "uint";
  if (code == Code::Float) name = "float";
  if (code == Code::Bfloat) name = "bfloat";
  if (code == Code::Complex) name = "complex";
  if (code == Code::Bool) return "bool";
  return name + std::to_string(type.bits);
}

Lengths lengths_from(const AnyArray& given, const char* name) {
  Imported array = imported(given, name);
  const std::optional<std::span<const int32_t>> values = viewed(array);
  if (!values) return {copied<int32_t>(array, name)};
  // The last view may go away in any thread, and when there is no interpreter any more.
  const std::shared_ptr<Imported> owner(new Imported(std::move(array)), [](Imported* kept) {
    if (!nb::is_alive()) return;
    const GilAcquired acquired;
    delete kept;
  });
  return {*values, owner};
}

std::vector<int64_t> integers_from(const AnyArray& given, const char* name) {
  return copied<int64_t>(imported(given, name), name);
}

Integers costs_from(const AnyArray& given, const char* name) {
  const Imported array = imported(given, name, Numbers::kAll);
  if (static_cast<nb::dlpack::dtype_code>(array.dtype().code) != nb::dlpack::dtype_code::Float)
    return copied<int64_t>(array, name);
  const int64_t stride = array.size() > 0 ? array.stride(0) : 1;
  std::vector<double> reals(array.size());
  const auto copy = [&]<class Real>(Real) {
    const auto* const from = static_cast<const unsigned char*>(static_cast<const void*>(array.data()));
    for (size_t i = 0; i < reals.size(); ++i) {
      Real value{};
      std::memcpy(&value, from + static_cast<int64_t>(i) * stride * static_cast<int64_t>(sizeof(Real)), sizeof(value));
      reals[i] = static_cast<double>(value);
    }
  };
  return without_gil([&] {
    if (array.dtype().bits == 32) {
      copy(float{});
    } else {
      copy(double{});
    }
    return whole_costs(reals, name);
  });
}

nb::object array_of(std::vector<int64_t> values) {
  auto* const kept = new std::vector<int64_t>(std::move(values));
  return view_of(std::span<const int64_t>(*kept), owner_of(kept));
}

}  // namespace pliant::python
