// Arrays that come from Python, and arrays that go there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nanobind.hpp"
#include "numpy.hpp"
#include "pliant/batches.hpp"
#include "pliant/lengths.hpp"
#include "process.hpp"

namespace pliant::python {

/// One-dimensional, of integers, whoever made it: a buffer, an array by DLPack, or a sequence of int.
using AnyArray = nb::object;

/// For messages: what `object` is, and the elements that it has, such as "float32".
std::string name_of_type(nb::handle object);
std::string dtype_name(nb::dlpack::dtype type);

/// 32-bit integers that lie one after the other are viewed where they are and kept alive; all others are copied.
/// `name` as in messages. Throws TypeError for what is no array of integers, kOutOfRange for a value beyond 32 bits.
Lengths lengths_from(const AnyArray& array, const char* name);

/// A copy with 64 bits each. Throws as above.
std::vector<int64_t> integers_from(const AnyArray& array, const char* name);

/// Costs, of integers or of floats, as whole numbers. Throws as above, and what whole_costs throws.
Integers costs_from(const AnyArray& array, const char* name);

/// An array that owns its values.
nb::object array_of(std::vector<int64_t> values);

/// The owner of an array of Python that shows `*kept`, which it frees: where that is large, without the lock of the
/// interpreter.
template <class Values>
nb::capsule owner_of(Values* kept) {
  return {kept, [](void* gone) noexcept {
            constexpr size_t kMany = 1U << 14U;  // from here on free() gives memory back to the system
            std::unique_ptr<Values> values(static_cast<Values*>(gone));
            if (values->size() < kMany) return;
            const GilReleased released;
            values.reset();
          }};
}

}  // namespace pliant::python
