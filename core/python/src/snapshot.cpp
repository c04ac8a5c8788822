// The state in a snapshot, into memory of the program.
#include <istream>
#include <iterator>

#include "bindings.hpp"
#include "failure.hpp"
#include "pliant/snapshot.hpp"

namespace pliant::python {

namespace {

const char* name_of(DType type) {
  switch (type) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kU8:
      return "u8";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
  }
  return "?";
}

/// Name, type and shape of each array.
nb::list named(const SnapshotContent& content) {
  nb::list made;
  for (const StateArray& array : content.arrays) {
    nb::list shape;
    for (const int64_t length : array.shape) shape.append(length);
    made.append(nb::make_tuple(array.name, name_of(array.dtype), nb::tuple(shape)));
  }
  return made;
}

/// `place` is given the step, the arrays and whether the job was a sharded one, and gives an address for each, 0 for
/// what is left out. Returns what the program wrote beside them.
nb::bytes load(const nb::object& file, const nb::object& place) {
  const std::filesystem::path path = path_from(file);
  std::string rest;
  Callback callback;
  try {
    without_gil([&] {
      load_snapshot(
          path,
          [&](SnapshotContent& content) {
            callback.run([&] {
              const auto places =
                  nb::cast<std::vector<uintptr_t>>(place(content.step, named(content), content.is_sharded));
              if (places.size() != content.arrays.size()) throw wrong("an address for each array is needed");
              for (size_t i = 0; i < places.size(); ++i) {
                content.arrays[i].data = reinterpret_cast<void*>(places[i]);  // NOLINT(performance-no-int-to-ptr)
              }
            });
          },
          [&](std::istream& in) { rest.assign(std::istreambuf_iterator<char>(in), {}); });
    });
  } catch (const Error&) {
    callback.rethrow();
    throw;
  }
  return nb::bytes(rest.data(), rest.size());
}

}  // namespace

void bind_snapshot(nb::module_& module) {
  using namespace nb::literals;
  module.def("_load_snapshot", &load, "file"_a, "place"_a);
}

}  // namespace pliant::python
