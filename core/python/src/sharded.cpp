// Sharded models for the bridge to PyTorch: memory comes and goes as addresses.
#include "sharded.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "dataset.hpp"
#include "failure.hpp"
#include "pliant/optimizer.hpp"
#include "session.hpp"

namespace pliant::python {

namespace {

std::vector<ParameterId> parameters_of(const std::vector<uint32_t>& numbers) {
  std::vector<ParameterId> made;
  for (const uint32_t number : numbers) made.push_back(ParameterId{number});
  return made;
}

Direction direction_of(const std::string& name) {
  if (name == "forward") return Direction::kForward;
  if (name == "backward") return Direction::kBackward;
  if (name == "recompute") return Direction::kRecompute;
  throw wrong("direction is \"" + name + R"("; it must be "forward", "backward" or "recompute")");
}

const char* float_name(DType type) {
  return type == DType::kBF16 ? "bfloat16" : "float32";
}

template <class Floats>
std::span<Floats> floats_at(uintptr_t address, uint64_t count) {
  return {reinterpret_cast<Floats*>(address), static_cast<size_t>(count)};  // NOLINT(performance-no-int-to-ptr)
}

uint32_t add_module(PySharded& self, const std::string& name, std::optional<uint32_t> parent,
                    const std::vector<uint32_t>& own) {
  ModuleSpec spec;
  spec.name = name;
  if (parent) spec.parent = ModuleId{*parent};
  spec.own = parameters_of(own);
  return static_cast<uint32_t>(self.here().add(std::move(spec)));
}

void begin_pass(PySharded& self, nb::handle rows) {
  const RowRange own = row_range_from(rows, "rows");
  self.call([own](ShardedModel& model) { model.begin_pass(own); });
}

void repeat_pass(PySharded& self, nb::handle rows) {
  const RowRange own = row_range_from(rows, "rows");
  self.call([own](ShardedModel& model) { model.repeat_pass(own); });
}

std::vector<uintptr_t> addresses(PySharded& self, const std::vector<uint32_t>& parameters) {
  ShardedModel& model = self.here();
  std::vector<uintptr_t> made;
  made.reserve(parameters.size());
  for (const uint32_t number : parameters) made.push_back(reinterpret_cast<uintptr_t>(model.data(ParameterId{number})));
  return made;
}

std::vector<uintptr_t> gradient_addresses(PySharded& self, const std::vector<uint32_t>& parameters) {
  return self.call([&parameters](ShardedModel& model) {
    std::vector<uintptr_t> made;
    made.reserve(parameters.size());
    for (const uint32_t number : parameters)
      made.push_back(reinterpret_cast<uintptr_t>(model.gradient_data(ParameterId{number})));
    return made;
  });
}

/// `each` is called with parameter, first element, count, and the addresses of weights, gradient and states.
void for_each_range(PySharded& self, const nb::object& each,
                    void (ShardedModel::*visit)(const std::function<void(const ShardRange&)>&)) {
  Callback callback;
  try {
    self.call([&](ShardedModel& model) {
      (model.*visit)([&](const ShardRange& range) {
        callback.run([&] {
          nb::list states;
          for (float* const state : range.state) states.append(reinterpret_cast<uintptr_t>(state));
          each(static_cast<uint32_t>(range.parameter), range.first, range.count,
               reinterpret_cast<uintptr_t>(range.weights), reinterpret_cast<uintptr_t>(range.gradient), states);
        });
      });
    });
  } catch (const Error&) {
    callback.rethrow();
    throw;
  }
}

nb::object memory_of(PySharded& self) {
  const ShardedMemory memory = self.here().memory();
  return nb::make_tuple(memory.weights, memory.state, memory.sums, memory.gathered, memory.gathered_most);
}

constexpr uint64_t kMegabyte = uint64_t{1} << 20U;
constexpr uint64_t kMostPieces = 4096;  // of one region, each a mapping of its own

[[noreturn]] void refuse_region(uint64_t bytes) {
  throw Error(Status::kResourceExhausted,
              "no addresses for " + std::to_string(bytes) + " bytes of a parameter: " + std::strerror(errno));
}

/// `bytes` of addresses that show one file over and over. It is never given back: tensors point there.
uintptr_t map_over(uint64_t bytes, uint64_t piece, int file) {
  const uint64_t size = (bytes + piece - 1) / piece * piece;
  void* const region = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) refuse_region(bytes);
  for (uint64_t at = 0; at < size; at += piece) {
    void* const place = static_cast<char*>(region) + at;
    if (::mmap(place, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED)
      refuse_region(bytes);
  }
  return reinterpret_cast<uintptr_t>(region);
}

/// Where parameters lie that are whole nowhere: all that is read there is NaN, of every type of floats. What is written
/// there changes a copy of that page.
uintptr_t absent(uint64_t bytes) {
  const uint64_t piece = std::max(kMegabyte, (bytes / kMostPieces + kMegabyte) / kMegabyte * kMegabyte);
  const int file = ::memfd_create("pliant absent", MFD_CLOEXEC);
  if (file < 0) refuse_region(bytes);
  const std::vector<unsigned char> ones(kMegabyte, 0xFF);
  for (uint64_t at = 0; at < piece; at += kMegabyte) {
    if (::pwrite(file, ones.data(), ones.size(), static_cast<off_t>(at)) != static_cast<ssize_t>(ones.size())) {
      ::close(file);
      refuse_region(bytes);
    }
  }
  try {
    const uintptr_t made = map_over(std::max<uint64_t>(bytes, 1), piece, file);
    ::close(file);
    return made;
  } catch (...) {
    ::close(file);
    throw;
  }
}

double squared_norm_at(uintptr_t address, uint64_t count) {
  return without_gil([=] { return squared_norm(floats_at<const float>(address, count)); });
}

int traverse_sharded(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  if (!nb::inst_ready(self)) return 0;
  for (PyObject* const held : nb::inst_ptr<PySharded>(self)->held()) Py_VISIT(held);
  return 0;
}

int clear_sharded(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<PySharded>(self)->clear();
  return 0;
}

PyType_Slot sharded_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse_sharded)},
                               {Py_tp_clear, reinterpret_cast<void*>(&clear_sharded)},
                               {0, nullptr}};

}  // namespace

PySharded::PySharded(nb::object owner, PySession& session, std::vector<std::string> states, nb::object initialise)
    : owner_(std::move(owner)), session_(&session), core_(std::make_shared<ShardedCore>()) {
  core_->initialise = std::move(initialise);
  core_->model.emplace(session.within(), std::move(states));
  session.keep(core_);
}

PySharded::~PySharded() {
  // The parent's; the session of this process has it, too.
  if (is_of_another_process()) {
    static_cast<void>(new (std::nothrow) std::shared_ptr<ShardedCore>(std::move(core_)));
  } else {
    give_back();
  }
}

void PySharded::give_back() {
  if (core_ && !core_->is_started) core_->model.reset();
}

ShardedModel& PySharded::here() {
  if (is_of_another_process()) {
    throw Error(Status::kFailedPrecondition,
                "this sharded model is of the process that this one was forked from: only that computes with it");
  }
  if (core_ && core_->model) return *core_->model;
  throw Error(Status::kFailedPrecondition, "the session of this sharded model has ended");
}

uint32_t PySharded::add_parameter(const std::string& name, std::vector<int64_t> shape, bool frozen) {
  ParameterSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  spec.frozen = frozen;
  const auto number = std::make_shared<uint32_t>(0);
  // Called by Session.next, and while the model lives.
  spec.initialise = [core = core_.get(), session = session_, number](std::span<float> values) {
    session->raised().run(
        [&] { core->initialise(*number, reinterpret_cast<uintptr_t>(values.data()), values.size()); });
  };
  *number = static_cast<uint32_t>(here().add(std::move(spec)));
  return *number;
}

std::array<PyObject*, 2> PySharded::held() const {
  return {owner_.ptr(), core_ ? core_->initialise.ptr() : nullptr};
}

void PySharded::clear() {
  if (is_of_another_process()) return;
  give_back();
  core_.reset();
  owner_.reset();
}

void bind_sharded(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PySharded>(module, "ShardedModel", nb::type_slots(sharded_slots))
      .def(
          "__init__",
          [](PySharded* made, nb::object session, std::vector<std::string> states, nb::object initialise) {
            auto& known = nb::cast<PySession&>(session);
            new (made) PySharded(std::move(session), known, std::move(states), std::move(initialise));
          },
          "session"_a, "states"_a, "initialise"_a)
      .def("add_parameter", &PySharded::add_parameter, "name"_a, "shape"_a, "frozen"_a)
      .def("add_module", &add_module, "name"_a, "parent"_a.none(), "own"_a)
      .def(
          "import_safetensors",
          [](PySharded& self, const nb::object& file) {
            const auto path = path_from(file);
            self.call([&](ShardedModel& model) { model.import_safetensors(path); });
          },
          "file"_a)
      .def(
          "export_safetensors",
          [](PySharded& self, const nb::object& file) {
            const auto path = path_from(file);
            self.call([&](ShardedModel& model) { model.export_safetensors(path); });
          },
          "file"_a)
      .def_prop_ro("compute_dtype", [](PySharded& self) { return float_name(self.here().compute_dtype()); })
      .def_prop_ro("reduce_dtype", [](PySharded& self) { return float_name(self.here().reduce_dtype()); })
      .def_prop_ro("memory", &memory_of)
      .def("begin_pass", &begin_pass, "rows"_a)
      .def("repeat_pass", &repeat_pass, "rows"_a)
      .def("can_repeat_pass", [](PySharded& self) { return self.here().can_repeat_pass(); })
      .def("begin_evaluation",
           [](PySharded& self) { self.call([](ShardedModel& model) { model.begin_evaluation(); }); })
      .def("end_pass", [](PySharded& self) { self.call([](ShardedModel& model) { model.end_pass(); }); })
      .def(
          "enter",
          [](PySharded& self, uint32_t number, const std::string& direction) {
            const Direction way = direction_of(direction);
            self.call([&](ShardedModel& model) { model.enter(ModuleId{number}, way); });
          },
          "module"_a, "direction"_a)
      .def(
          "leave",
          [](PySharded& self, uint32_t number, const std::string& direction) {
            const Direction way = direction_of(direction);
            self.call([&](ShardedModel& model) { model.leave(ModuleId{number}, way); });
          },
          "module"_a, "direction"_a)
      .def("addresses", &addresses, "parameters"_a)
      .def("gradient_addresses", &gradient_addresses, "parameters"_a)
      .def(
          "prefetch",
          [](PySharded& self, uint32_t number) {
            self.call([&](ShardedModel& model) { model.prefetch(ParameterId{number}); });
          },
          "parameter"_a)
      .def(
          "fetch",
          [](PySharded& self, uint32_t number) {
            self.call([&](ShardedModel& model) { model.fetch(ParameterId{number}); });
          },
          "parameter"_a)
      .def(
          "release",
          [](PySharded& self, uint32_t number) {
            self.call([&](ShardedModel& model) { model.release(ParameterId{number}); });
          },
          "parameter"_a)
      .def(
          "read",
          [](PySharded& self, uint32_t number, uintptr_t address, uint64_t count) {
            self.call([&](ShardedModel& model) { model.read(ParameterId{number}, floats_at<float>(address, count)); });
          },
          "parameter"_a, "address"_a, "count"_a)
      .def(
          "write",
          [](PySharded& self, uint32_t number, uintptr_t address, uint64_t count) {
            self.call(
                [&](ShardedModel& model) { model.write(ParameterId{number}, floats_at<const float>(address, count)); });
          },
          "parameter"_a, "address"_a, "count"_a)
      .def("squared_gradient_norm", [](PySharded& self) { return self.here().squared_gradient_norm(); })
      .def(
          "update", [](PySharded& self, const nb::object& each) { for_each_range(self, each, &ShardedModel::update); },
          "each"_a)
      .def(
          "visit_owned",
          [](PySharded& self, const nb::object& each) { for_each_range(self, each, &ShardedModel::visit_owned); },
          "each"_a);
  module.def("_absent", &absent, "bytes"_a);
  module.def("_squared_norm", &squared_norm_at, "address"_a, "count"_a);
}

}  // namespace pliant::python
