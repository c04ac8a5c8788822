// The state in a snapshot, into memory of the program or into a file of tensors.
#include <filesystem>
#include <istream>
#include <iterator>
#include <optional>

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

int64_t export_to(const nb::object& run, const nb::object& file, bool best, std::optional<int64_t> step, bool replace) {
  const std::filesystem::path from = path_from(run);
  const std::filesystem::path to = path_from(file);
  return without_gil([&] { return export_snapshot(from, {best, step}, to, replace).step; });
}

// What help() says in Python.
constexpr const char* kDocOfExport =
    R"(Writes a snapshot of a run to `file`, a .safetensors file, whole or not at all, and returns the number of committed
steps that it holds.

`run` is the directory of the run, such as pliant-runs/NAME/latest, at which a job may be at work. The newest snapshot
is taken, or the best one by [run] keep_best, or the one with `step` committed steps. `run` may be a snapshot file, too,
of which nothing is chosen. The file has all arrays of the state by name, of a job in shards its parameters in float32;
its metadata say run and step and, of the best one, metric and value.

Raises Error: NOT_FOUND where there is no such run, snapshot or folder, or no snapshot has a value of keep_best;
FAILED_PRECONDITION where the run keeps no best one, the snapshot has no arrays, or `file` is there already and may not
be replaced; DATA_LOSS for a damaged snapshot.)";

}  // namespace

void bind_snapshot(nb::module_& module) {
  using namespace nb::literals;
  module.def("_load_snapshot", &load, "file"_a, "place"_a);
  module.def("export_snapshot", &export_to, "run"_a, "file"_a, nb::kw_only(), "best"_a = false, "step"_a = nb::none(),
             "replace"_a = false, kDocOfExport);
}

}  // namespace pliant::python
