// The record of a job without an agent, for Python.
#include <istream>
#include <memory>
#include <ostream>
#include <tuple>

#include "bindings.hpp"
#include "failure.hpp"
#include "pliant/job_record.hpp"

namespace pliant::python {

namespace {

struct PyLedger : Serial {
  static constexpr const char* kName = "Ledger";
  explicit PyLedger(JobRecord made) : record(std::make_unique<JobRecord>(std::move(made))) {}
  ~PyLedger() {
    if (is_of_another_process()) {
      static_cast<void>(record.release());
      return;
    }
    const GilReleased released;  // it closes files
    record.reset();
  }
  PyLedger(const PyLedger&) = delete;
  PyLedger& operator=(const PyLedger&) = delete;

  /// Runs `work` on the record, without the lock of the interpreter.
  template <class Work>
  auto call(Work&& work) {
    return without_gil([&] {
      const Turn turn(*this, kName);
      return std::forward<Work>(work)(*record);
    });
  }

  std::unique_ptr<JobRecord> record;
};

std::unique_ptr<PyLedger> begin_ledger(const PyConfig& config, const Plan& plan, PyBatches& batches) {
  return without_gil([&] {
    const Turn turn(batches, PyBatches::kName);
    return std::make_unique<PyLedger>(JobRecord::begin(*config.config, plan, *batches.batches));
  });
}

std::unique_ptr<PyLedger> open_ledger(const nb::object& directory, const PyConfig& config, const Plan& plan,
                                      PyBatches& batches) {
  const std::filesystem::path path = path_from(directory);
  return without_gil([&] {
    const Turn turn(batches, PyBatches::kName);
    return std::make_unique<PyLedger>(JobRecord::open(path, *config.config, plan, *batches.batches));
  });
}

/// What a snapshot is written to. Of no use after the call that it was given to.
struct SnapshotWriter {
  std::ostream* to = nullptr;

  int64_t write(const nb::object& bytes) const {
    if (to == nullptr) throw Error(Status::kFailedPrecondition, "this snapshot is written");
    if (nb::isinstance<nb::bytes>(bytes)) return put(nb::borrow<nb::bytes>(bytes));
    const nb::object view = nb::steal(PyMemoryView_FromObject(bytes.ptr()));
    if (!view.is_valid()) throw nb::python_error();
    // Arrays are read where they are; what is none, such as one of records, is copied with the lock, for the stable ABI
    // of Python 3.10 has no buffers.
    nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu> array;
    if (nb::try_cast(view, array, false)) return put(static_cast<const char*>(array.data()), array.nbytes());
    PyErr_Clear();
    const auto copied = nb::steal<nb::bytes>(PyBytes_FromObject(view.ptr()));
    if (!copied.is_valid()) throw nb::python_error();
    return put(copied);
  }

 private:
  int64_t put(const nb::bytes& bytes) const { return put(bytes.c_str(), bytes.size()); }
  int64_t put(const char* from, size_t count) const {
    const GilReleased released;
    to->write(from, static_cast<std::streamsize>(count));
    return static_cast<int64_t>(count);
  }
};

void keep_snapshot(PyLedger& self, const nb::bytes& lr_state, const nb::object& write) {
  const std::string rate(lr_state.c_str(), lr_state.size());
  Callback callback;
  try {
    self.call([&](JobRecord& record) {
      record.keep_snapshot(rate, [&](std::ostream& out) {
        callback.run([&] {
          const nb::object writer = nb::cast(SnapshotWriter{&out});
          try {
            calling_python([&] { write(writer); });
          } catch (...) {
            nb::cast<SnapshotWriter&>(writer).to = nullptr;
            throw;
          }
          nb::cast<SnapshotWriter&>(writer).to = nullptr;
        });
      });
    });
  } catch (const Error&) {
    callback.rethrow();
    throw;
  }
}

std::tuple<int64_t, nb::bytes, nb::object> restore(PyLedger& self) {
  nb::object state = nb::none();
  Callback callback;
  try {
    const Restored from = self.call([&](JobRecord& record) {
      return record.restore([&](std::istream& in) {
        in.seekg(0, std::ios_base::end);
        const auto size = static_cast<std::streamsize>(in.tellg());
        in.seekg(0);
        // Read without the lock into what Python is given: a state may be as large as half the memory.
        char* const to = callback.run([&] {
          state = nb::steal(PyBytes_FromStringAndSize(nullptr, size));
          if (!state.is_valid()) throw nb::python_error();
          return PyBytes_AsString(state.ptr());
        });
        in.read(to, size);
      });
    });
    return {from.step, nb::bytes(from.lr_state.data(), from.lr_state.size()), state};
  } catch (const Error&) {
    callback.rethrow();
    throw;
  }
}

}  // namespace

void bind_ledger(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<SnapshotWriter>(module, "SnapshotWriter")
      .def("write", &SnapshotWriter::write, "data"_a)
      .def("flush", [](const SnapshotWriter&) {});
  nb::class_<PyLedger>(module, "Ledger")
      .def_static("begin", &begin_ledger, "config"_a, "plan"_a, "batches"_a)
      .def_static("open", &open_ledger, "directory"_a, "config"_a, "plan"_a, "batches"_a)
      .def_prop_ro(
          "directory",
          [](PyLedger& self) { return path_for_python(self.call([](JobRecord& known) { return known.directory(); })); })
      .def_prop_ro("steps", [](PyLedger& self) { return self.call([](JobRecord& known) { return known.steps(); }); })
      .def_prop_ro("position",
                   [](PyLedger& self) {
                     const BatchPosition next = self.call([](JobRecord& known) { return known.position(); });
                     return std::make_tuple(next.epoch, next.index);
                   })
      .def(
          "start_generation",
          [](PyLedger& self, int64_t world_size, const std::string& reason) {
            self.call([&](JobRecord& known) { known.start_generation(positive(world_size, "world_size"), reason); });
          },
          "world_size"_a, "reason"_a)
      .def(
          "commit",
          [](PyLedger& self, const PyBatch& batch, const Assignment& assignment, double loss, double learning_rate) {
            self.call([&](JobRecord& known) { known.commit(*batch.batch, assignment, loss, learning_rate); });
          },
          "batch"_a, "assignment"_a, "loss"_a, "learning_rate"_a)
      .def("_keep_snapshot", &keep_snapshot, "lr_state"_a, "write"_a)
      .def("_restore", &restore);
}

}  // namespace pliant::python
