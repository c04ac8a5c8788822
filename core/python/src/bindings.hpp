// The classes behind those of Python, and the functions that add them to the module.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "nanobind.hpp"
#include "pliant/balancer.hpp"
#include "pliant/batches.hpp"
#include "pliant/config.hpp"
#include "pliant/micro_batches.hpp"
#include "pliant/plan.hpp"
#include "process.hpp"

namespace pliant::python {

/// A new object with `value`: of the class of `Value`, or of `type`, a class in Python over it that has methods of its
/// own and no members which need a constructor. nb::cast does the first of it in twice the code.
template <class Value>
nb::object instance_of(Value value, nb::handle type = {}) {
  nb::object made = nb::inst_alloc(type.is_valid() ? type : nb::type<Value>());
  new (nb::inst_ptr<Value>(made)) Value(std::move(value));
  nb::inst_mark_ready(made);
  return made;
}

/// What an object of Python holds and may share with others. The last one frees it without the lock of the interpreter,
/// for that may take long: of a large data set its memory, of a config its plugins, which are closed. It goes with that
/// lock, as objects of Python do.
template <class Held>
class FreedWithoutGil {
 public:
  FreedWithoutGil(std::shared_ptr<Held> one) noexcept  // NOLINT(google-explicit-constructor): it is that
      : one_(std::move(one)) {}
  ~FreedWithoutGil() {
    if (one_.use_count() != 1) return;
    const GilReleased released;
    one_.reset();
  }
  FreedWithoutGil(const FreedWithoutGil&) = default;
  FreedWithoutGil& operator=(const FreedWithoutGil&) = default;
  FreedWithoutGil(FreedWithoutGil&&) noexcept = default;
  FreedWithoutGil& operator=(FreedWithoutGil&&) noexcept = default;

  Held& operator*() const noexcept { return *one_; }
  Held* operator->() const noexcept { return one_.get(); }

 private:
  std::shared_ptr<Held> one_;
};

struct PyConfig {
  ConfigNeeds needs;
  FreedWithoutGil<const Config> config;
};

struct PyPlanner {
  explicit PyPlanner(const Config& config) : planner(std::make_shared<const Planner>(config)) {}
  FreedWithoutGil<const Planner> planner;
};

/// A data set whose lengths may be an array of the program's, which may change it.
class PyDataset {
 public:
  explicit PyDataset(Dataset dataset);
  [[nodiscard]] const Dataset& get() const { return dataset_; }
  /// Throws kFailedPrecondition where a length is another than when this was made. O(sequences), 10 ms for 10 million.
  void check_unchanged() const;

 private:
  [[nodiscard]] uint64_t digest() const;
  Dataset dataset_;
  uint64_t digest_;
};

struct PyBatch {
  std::shared_ptr<const Batch> batch;  ///< never null
  FreedWithoutGil<const PyDataset> dataset;
};

struct PyBatches : Serial {
  static constexpr const char* kName = "Batches";
  PyBatches(std::shared_ptr<const PyDataset> of, Batches made)
      : dataset(std::move(of)), batches(std::make_unique<Batches>(std::move(made))) {}
  /// In a forked process the parent's threads are missing: what was made there is left alone. Else a plan goes without
  /// the lock of the interpreter: that of 10 million sequences takes 60 ms.
  ~PyBatches() {
    if (is_of_another_process()) {
      static_cast<void>(batches.release());
      return;
    }
    const GilReleased released;
    batches.reset();
  }
  PyBatches(const PyBatches&) = delete;
  PyBatches& operator=(const PyBatches&) = delete;

  /// What `work` returns of the batches, without the lock of the interpreter.
  template <class Work>
  auto call(Work&& work) {
    return without_gil([&] {
      const Turn turn(*this, kName);
      return std::forward<Work>(work)(*batches);
    });
  }
  /// The same for `work` that looks at `epoch`, which may have to be planned.
  template <class Work>
  auto call(int64_t epoch, Work&& work) {
    return without_gil([&] {
      const Turn turn(*this, kName);
      come_to(epoch);
      return std::forward<Work>(work)(*batches);
    });
  }
  /// The same for `work` that may plan any epoch.
  template <class Work>
  auto call_planning(Work&& work) {
    return without_gil([&] {
      const Turn turn(*this, kName);
      expect_plans();
      return std::forward<Work>(work)(*batches);
    });
  }
  /// `epoch` is looked at. Throws where the lengths were changed since the one before.
  void come_to(int64_t epoch) {
    if (epoch == planned) return;
    expect_plans();
    planned = epoch;
  }
  /// Some epoch is planned next, which one is not known. Throws where the lengths were changed.
  void expect_plans();
  /// The batch that Batches::next gives, or one without rows.
  std::optional<Batch> next();
  Batch at_step(int64_t step);
  bool has_step(int64_t step);
  /// `batch` is that of `step`.
  void know(const Batch& batch, int64_t step);

  const FreedWithoutGil<const PyDataset> dataset;
  std::unique_ptr<Batches> batches;
  int64_t planned = -1;      ///< the epoch that was looked at last; -1: none
  int64_t first_step = 0;    ///< of that epoch, and the first of the one after it; both 0: not known. Of steps of
  int64_t end_step = 0;      ///< that epoch nobody plans anything
  bool is_at_border = true;  ///< next may have to plan an epoch
};

/// The path that `file` names: str, bytes or os.PathLike, as open() takes them. Throws TypeError for anything else.
std::filesystem::path path_from(const nb::object& file);
/// As Python names paths: bytes that are no UTF-8 are kept as os.fsdecode keeps them.
nb::object path_for_python(const std::filesystem::path& path);

/// A count that must be 1 at least.
int64_t positive(int64_t count, const char* name);

void bind_config(nb::module_& module);
void bind_plan(nb::module_& module);
void bind_batches(nb::module_& module);
void bind_micro_batches(nb::module_& module);
void bind_balancer(nb::module_& module);
void bind_items(nb::module_& module);
void bind_learning_rate(nb::module_& module);
void bind_ledger(nb::module_& module);
void bind_lengths(nb::module_& module);
void bind_session(nb::module_& module);
void bind_sharded(nb::module_& module);
void bind_deepspeed(nb::module_& module);
void bind_snapshot(nb::module_& module);

}  // namespace pliant::python
