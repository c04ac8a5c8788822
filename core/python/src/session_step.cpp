// Steps for Python: gradients go in, and the mean comes out, where they lie.
#include <string>
#include <string_view>
#include <variant>

#include "arrays.hpp"
#include "dataset.hpp"
#include "session.hpp"

namespace pliant::python {

namespace {

constexpr uint64_t kMostWithLock = uint64_t{1} << 14U;  // elements, which are read in a few microseconds

template <class To>
void give(To& to, void (To::*by_weight)(std::string_view, double, double),
          void (To::*by_rule)(std::string_view, double, MetricRule), const std::string& name, double value,
          double weight, const std::string& rule) {
  if (rule == "mean") return (to.*by_weight)(name, value, weight);
  MetricRule known = MetricRule::kSum;
  if (rule == "max") known = MetricRule::kMax;
  if (rule == "min") known = MetricRule::kMin;
  if (known == MetricRule::kSum && rule != "sum")
    throw wrong("rule is \"" + rule + "\"; it must be \"mean\", \"sum\", \"max\" or \"min\"");
  (to.*by_rule)(name, value, known);
}

/// A step, until the next one is asked for; what it was by then may still be read.
struct PyStep {
  nb::object owner;
  PySession* session;
  uint64_t serial;
  int64_t index;
  int64_t rank;
  int64_t world_size;
  int64_t shares;
  double learning_rate;
  std::vector<RowRange> micros;
  nb::object ranges{};  ///< of micros, once they were asked for
  size_t added = 0;
  bool is_voted = false;      ///< commit was called
  bool is_attempted = false;  ///< an attempt is under way
  bool is_lost = false;       ///< its passes were given up
  bool is_example = false;    ///< the loader has handed out rows that count nothing
  bool is_final = false;

  /// The step of core. Throws kFailedPrecondition where it is over.
  [[nodiscard]] Step& in_hand() const {
    session->require_here();
    if (serial == session->serial()) return session->step_in_hand();
    throw Error(Status::kFailedPrecondition,
                "step " + std::to_string(index) + " is over: Session.next was called after it");
  }
  /// The same of one that takes gradients.
  [[nodiscard]] Step& open() const {
    Step& step = in_hand();
    if (!is_voted) return step;
    throw Error(Status::kFailedPrecondition,
                "Step.commit was called for step " + std::to_string(index) + ": ask Session.next for what comes now");
  }
  nb::object rows_of_micros() {
    if (!ranges.is_valid()) ranges = session->ranges_of(micros);
    return ranges;
  }
  [[nodiscard]] RowRange rows_from(nb::handle rows) const {
    if (ranges.is_valid() && added < micros.size() &&
        PyTuple_GetItem(ranges.ptr(), static_cast<Py_ssize_t>(added)) == rows.ptr())
      return micros[added];
    return row_range_from(rows, "rows");
  }
};

/// What `work` returns, without the lock where it may take its time.
template <class Work>
auto lend_lock(bool takes_long, Work&& work) {
  if (takes_long) return without_gil(std::forward<Work>(work));
  return work();
}

void add(PyStep& self, nb::handle rows, double loss_sum, nb::handle gradient) {
  Step& step = self.open();
  const RowRange own = self.rows_from(rows);
  const auto require_whole = [&](uint64_t count) {
    const uint64_t size = self.session->gradient_size();
    if (count == size) return;
    throw wrong("the gradient has " + std::to_string(count) + " elements, but gradient_size of the state is " +
                std::to_string(size) + "; give all of it, or pieces by Step.add_piece");
  };
  if (gradient.is_none()) {
    const Turn turn(*self.session, PySession::kName);
    step.add(own, loss_sum);
  } else if (const auto floats = floats_of(gradient)) {
    require_whole(floats->size());
    const nb::object kept = nb::borrow(gradient);  // numpy resizes no array that others hold
    const Turn turn(*self.session, PySession::kName);
    lend_lock(floats->size() > kMostWithLock, [&] { step.add(own, loss_sum, *floats); });
  } else {
    PieceOfGradient piece = piece_from(gradient, 0, nb::none(), nb::none(), "gradient");
    const GradientPiece& whole = piece.piece;
    require_whole(whole.count);
    const Turn turn(*self.session, PySession::kName);
    lend_lock(whole.count > kMostWithLock, [&] {
      // Of a device, or of 16 bits, it is a piece that must be all.
      if (piece.is_on_host && whole.dtype == DType::kF32) {
        return step.add(own, loss_sum, {static_cast<const float*>(whole.data), static_cast<size_t>(whole.count)});
      }
      step.add(own, loss_sum, whole);
    });
    if (!piece.is_on_host) self.session->keep(std::move(piece));
  }
  if (++self.added == self.micros.size()) self.session->note_complete();
}

void add_piece(PyStep& self, nb::handle rows, nb::handle offset, nb::handle given, nb::handle count, nb::handle dtype) {
  Step& step = self.open();
  const RowRange own = self.rows_from(rows);
  PieceOfGradient piece = piece_from(given, count_from(offset, "offset"), count, dtype, "piece");
  const Turn turn(*self.session, PySession::kName);
  lend_lock(piece.piece.count > kMostWithLock, [&] { step.add_piece(own, piece.piece); });
  if (!piece.is_on_host) self.session->keep(std::move(piece));
}

struct PyCommitted {
  nb::object owner;
  PySession* session;
  uint64_t serial;
  Committed committed;

  [[nodiscard]] const Committed& valid() const {
    session->require_here();
    if (serial == session->serial()) return committed;
    throw Error(Status::kFailedPrecondition,
                "the gradient of a step is there until Session.next is called: copy what is needed longer");
  }
};

using DeviceArray = nb::ndarray<nb::array_api, float, nb::ndim<1>>;

/// The mean is the program's until the next step: nothing reads it meanwhile.
float* writable(std::span<const float> gradient) {
  return const_cast<float*>(gradient.data());
}

nb::object gradient_of(const PyCommitted& self) {
  const Committed& committed = self.valid();
  const auto gradient = lend_lock(!self.session->is_on_host(), [&] { return committed.gradient(); });
  return view_of(std::span(writable(gradient), gradient.size()), self.owner);
}

nb::object device_gradient_of(const PyCommitted& self) {
  const auto gradient = self.valid().device_gradient();
  Session& session = self.session->within();
  const std::string& name = session.config().use("accelerator");
  int place = nb::device::cpu::value;
  if (name == "cuda") place = nb::device::cuda::value;
  if (name == "level_zero") place = nb::device::oneapi::value;
  const int number = place == nb::device::cpu::value ? 0 : session.device();
  return nb::cast(
      DeviceArray(writable(gradient), {gradient.size()}, self.owner, {}, nb::dtype<float>(), place, number));
}

nb::object vote(PyStep& self) {
  Step& step = self.open();
  self.is_voted = true;
  self.session->note_answered();
  const std::optional<Committed> committed = self.session->call([&](Session&) { return step.commit(); });
  self.session->drop_pieces();
  if (!committed) return nb::none();
  self.is_final = true;
  return instance_of(PyCommitted{self.owner, self.session, self.serial, *committed});
}

nb::object pending(PyStep& self) {
  if (self.added >= self.micros.size()) return nb::none();
  return nb::tuple(self.rows_of_micros())[self.added];
}

void backward(nb::handle self, nb::handle loss_sum) {
  auto& step = nb::cast<PyStep&>(self);
  const nb::object& hook = step.session->hooks().backward;
  if (!StepHooks::is_there(hook)) {
    throw Error(Status::kUnimplemented, "this state has no method `backward`: call Step.add with the gradient");
  }
  const nb::object rows = pending(step);
  if (rows.is_none()) {
    throw Error(Status::kFailedPrecondition, "all micro-batches of this rank were added already: call Step.commit");
  }
  hook(self, rows, loss_sum);
}

nb::object commit(nb::handle self) {
  auto& step = nb::cast<PyStep&>(self);
  if (step.is_lost) return nb::none();
  PySession& session = *step.session;
  const StepHooks& hooks = session.hooks();
  if (StepHooks::is_there(hooks.finish) && step.added < step.micros.size()) {
    hooks.finish(self);
    if (step.is_lost) return nb::none();
  }
  if (StepHooks::is_there(hooks.backward) && step.added < step.micros.size()) {
    const RowRange& rows = step.micros[step.added];
    throw Error(Status::kFailedPrecondition,
                "step " + std::to_string(step.index) + ": rows " + std::to_string(rows.first) + ".." +
                    std::to_string(rows.first + rows.count - 1) +
                    " have no gradient yet: step.backward(loss_sum) comes once for each batch of the step, in place of "
                    "loss_sum.backward(), and before commit(). No batch is left out; where a loss is not finite [run] "
                    "on_nonfinite = \"skip\" leaves out the step");
  }
  if (StepHooks::is_there(hooks.before_commit)) hooks.before_commit(self);
  const bool was_final = step.is_final;
  try {
    nb::object committed = vote(step);
    if (!committed.is_none() && StepHooks::is_there(hooks.committed)) hooks.committed(self, committed);
    if (PyErr_CheckSignals() != 0) throw nb::python_error();  // what a handler raises after the return comes out there
    return committed;
  } catch (...) {
    if (step.is_final && !was_final) session.leave_undone(step.index);
    throw;
  }
}

/// Passes of a sharded model begin: what a `with` block of the program throws is that of one attempt.
void begin_attempt(PyStep& self) {
  Step& step = self.in_hand();
  static_cast<void>(self.session->ask([&](Session&) { return step.attempt([] {}); }));
}

/// True where the group changed. `exit_code`: of the error, as Python has it.
bool give_up(PyStep& self, int status, const std::string& message, int exit_code) {
  self.is_lost = true;
  Step& step = self.in_hand();
  self.session->note_answered();
  Origin origin = Origin::kRun;
  if (exit_code == 2) origin = Origin::kInput;
  if (exit_code == 3) origin = Origin::kPlugin;
  return self.session->call(
      [&](Session&) { return step.give_up(Error(static_cast<Status>(status), message, origin)); });
}

struct PyComing {
  int64_t index;
  nb::object batch;
  nb::object micro_batches;
  int64_t shares;
};

/// Throws TypeError where `type` is no class in Python over that of `Value`.
template <class Value>
void require_class_over(nb::handle type) {
  if (PyType_Check(type.ptr()) == 0 || PyObject_IsSubclass(type.ptr(), nb::type<Value>().ptr()) != 1)
    raise(PyExc_TypeError, "no class over " + nb::cast<std::string>(nb::type_name(nb::type<Value>())));
}

nb::object next(nb::object self) {
  auto& session = nb::cast<PySession&>(self);
  if (!session.next()) return nb::none();
  const Step& step = session.step_in_hand();
  nb::object made = instance_of(PyStep{.owner = std::move(self),
                                       .session = &session,
                                       .serial = session.serial(),
                                       .index = step.index(),
                                       .rank = step.rank(),
                                       .world_size = step.world_size(),
                                       .shares = step.shares(),
                                       .learning_rate = step.learning_rate(),
                                       .micros = step.micro_batches()},
                                session.step_type());
  if (StepHooks::is_there(session.hooks().begin)) session.hooks().begin(made);
  return made;
}

/// Steps for a loop: without the calls of Python's own that an iterator written in Python costs.
struct PySteps {
  nb::object next;     ///< PySession's, bound
  nb::object session;  ///< of the package, which is kept
};

PyObject* next_of_steps(PyObject* self) {
  PyObject* const made = PyObject_CallNoArgs(nb::inst_ptr<PySteps>(self)->next.ptr());
  if (made != Py_None) return made;
  Py_DECREF(made);
  return nullptr;  // the end, where no exception is set
}

nb::object coming(PySession& self, int64_t ahead) {
  const ComingStep* const found = self.call([&](Session& of) { return of.coming(ahead); });
  if (found == nullptr) return nb::none();
  return instance_of(PyComing{found->index, self.batch_of(*found), self.ranges_of(found->micro_batches), found->shares},
                     self.coming_type());
}

void hand_out(PySession& self, nb::object step_type, nb::object coming_type) {
  require_class_over<PyStep>(step_type);
  require_class_over<PyComing>(coming_type);
  self.hand_out(std::move(step_type), std::move(coming_type));
}

// What help() says in Python of members of ComingStep and Step.

constexpr const char* kDocOfAdd =
    R"(Adds the gradient of the SUMMED loss over `rows`. Each micro-batch exactly once, in order.

`gradient`: an array of `gradient_size` elements in row-major order, of float32, float16 or bfloat16, by the
buffer protocol or DLPack, in memory of the CPU or of the rank's device. It is not copied on its way, and has
been read when the call returns. None: it was added in pieces, of which none may be missing. Raises Error
(INVALID_ARGUMENT) for other rows than those of `pending` and for a gradient of another size, TypeError for what
is no such array; nothing was added then.)";

constexpr const char* kDocOfAddPiece =
    R"(Adds a piece of the gradient over `rows`, in any order and as they become ready: elements from `offset` on.

`piece`: an array as in `add`, or the address of `count` elements of `dtype`: "float32", "float16" or
"bfloat16". One in memory of the CPU has been read when the call returns. Of one in memory of a device the read
is only enqueued: it may be overwritten after `Session.synchronize` or `commit`, and what the device still has
to write into it must be done before the call. Raises as `add` does, and for a piece that overlaps another one
or leaves the gradient.

Without `[run] deterministic`, and where the CPU sees the device's memory, pieces of this rank's last
micro-batch travel to the other ranks at once, from the end of the gradient to its beginning. Where such a step
is not committed all ranks make it again.)";

constexpr const char* kDocOfBackward =
    R"(Has the state compute and add the gradient of `loss_sum`, the summed loss over the micro-batch that is next:
`TrainerState.backward`. After an exception of it the micro-batch is still the next one: a program that catches it
computes the loss again and calls this again, or goes on with the session's next step, which is this one again.)";

constexpr const char* kDocOfCommit =
    R"(Reduces, votes and waits for the verdict. None: the group changed first, or [run] on_nonfinite = "skip" leaves
out the update of this step; go on with the next one, which may be this step again. Else the step is final, and the
program MUST apply the gradient before it asks for the next step. Raises Error (PEER_LOST) when the agent is gone.

An exception that comes out of a call whose step is final, an interrupt say, leaves the update undone: the session
hands out no more steps then, and the process should end. Another worker takes its place.)";

constexpr const char* kDocOfMetric =
    R"(Gives a metric of this step, before `commit`: `pliant run` shows it, the ledger keeps it with the commit. All
values that ranks give for `name` become one, by `rule`: "mean", which is by weight, "sum", "max" or "min". What is
given while the loader has handed out rows that count nothing (`Loader.of`) is left out. Raises Error for a name that is not 1 to 64 letters, digits and any of ".-_/:", for one that was given with
another rule, and after `commit`: see `Session.evaluated`.)";

constexpr const char* kDocOfComingMicroBatches =
    R"(This rank's rows as of now: those of the step where its `Step.shares` is this `shares`, and maybe others where
it is not.)";

constexpr const char* kDocOfMicroBatches =
    R"(This rank's rows, as positions in `batch`: a range for each micro-batch, which is computed at once. Empty when
the batch is short and this rank owns none; `commit` must be called all the same. Of a model that is cut over
the ranks all have as many, and the last ones may have no rows: `commit` sees to them.)";

constexpr const char* kDocOfShares =
    R"(A number that rises whenever rows may be shared out again: what `Session.coming` said under another one need not
hold.)";

constexpr const char* kDocOfScaling =
    R"(The rate and what goes with it: factors of betas, epsilon, weight decay and the rest; of a group of parameters
whose base rate is `base_lr`, above 0, in place of [lr] base_lr, or which [lr.groups] has by that name. Raises
Error (NOT_FOUND) for another name.)";

/// A state may keep a step, and so a session that keeps the state: the collector of garbage is to see it.
template <class OfSession>
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<OfSession>(self)->owner.ptr());
  return 0;
}

int traverse_steps(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  if (!nb::inst_ready(self)) return 0;
  Py_VISIT(nb::inst_ptr<PySteps>(self)->next.ptr());
  Py_VISIT(nb::inst_ptr<PySteps>(self)->session.ptr());
  return 0;
}

PyType_Slot steps_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse_steps)},
                             {Py_tp_iter, reinterpret_cast<void*>(&PyObject_SelfIter)},
                             {Py_tp_iternext, reinterpret_cast<void*>(&next_of_steps)},
                             {0, nullptr}};
PyType_Slot step_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse<PyStep>)}, {0, nullptr}};
PyType_Slot committed_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse<PyCommitted>)}, {0, nullptr}};

}  // namespace

void give_evaluation(Session& to, const std::string& name, double value, double weight, const std::string& rule) {
  give<Session>(to, &Session::evaluated, &Session::evaluated, name, value, weight, rule);
}

void bind_steps(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PyCommitted>(module, "Committed", nb::type_slots(committed_slots))
      .def_prop_ro("loss", [](const PyCommitted& self) { return self.committed.loss; })
      .def_prop_ro("gradient", &gradient_of)
      .def_prop_ro("device_gradient", &device_gradient_of)
      .def_prop_ro("address", [](const PyCommitted& self) {
        return reinterpret_cast<uintptr_t>(self.valid().device_gradient().data());
      });
  [[maybe_unused]] const nb::class_<PySteps> steps(module, "Steps", nb::type_slots(steps_slots));
  nb::class_<PyComing>(module, "ComingStep")
      .def_ro("index", &PyComing::index, "Its number among the steps, `Step.index`.")
      .def_ro("batch", &PyComing::batch, "What the step will have, whatever becomes of the group.")
      .def_ro("micro_batches", &PyComing::micro_batches, kDocOfComingMicroBatches)
      .def_ro("shares", &PyComing::shares);
  nb::class_<PyStep>(module, "Step", nb::type_slots(step_slots))
      .def_ro("index", &PyStep::index, "Committed steps before this one; the step's number, from 0.")
      .def_prop_ro(
          "batch",
          [](const PyStep& self) {
            static_cast<void>(self.in_hand());
            return self.session->batch_in_hand();
          },
          "The global batch. It may be kept.")
      .def_prop_ro("micro_batches", &PyStep::rows_of_micros, kDocOfMicroBatches)
      .def_prop_ro("pending", &pending, "The micro-batch whose gradient comes next; None when all were added.")
      .def_ro("rank", &PyStep::rank)
      .def_ro("world_size", &PyStep::world_size)
      .def_ro("shares", &PyStep::shares, kDocOfShares)
      .def_ro("learning_rate", &PyStep::learning_rate)
      .def_rw("_is_example", &PyStep::is_example)
      .def_prop_ro("_state", [](const PyStep& self) { return self.session->program(); })
      .def_ro("_is_lost", &PyStep::is_lost)
      .def_rw("_is_attempted", &PyStep::is_attempted)
      .def(
          "scaling",
          [](const PyStep& self, const std::optional<std::variant<double, std::string>>& base_lr) {
            const Step& step = self.in_hand();
            if (!base_lr) return step.scaling();
            const auto* const group = std::get_if<std::string>(&*base_lr);
            return group != nullptr ? step.scaling(std::string_view(*group)) : step.scaling(std::get<double>(*base_lr));
          },
          "base_lr"_a = nb::none(), kDocOfScaling)
      .def("add", &add, "rows"_a, "loss_sum"_a, "gradient"_a = nb::none(), kDocOfAdd)
      .def("add_piece", &add_piece, "rows"_a, "offset"_a, "piece"_a, "count"_a = nb::none(), "dtype"_a = nb::none(),
           kDocOfAddPiece)
      .def(
          "metric",
          [](const PyStep& self, const std::string& name, double value, double weight, const std::string& rule) {
            if (self.is_example) return;
            Step& step = self.in_hand();
            const Turn turn(*self.session, PySession::kName);
            give<Step>(step, &Step::metric, &Step::metric, name, value, weight, rule);
          },
          "name"_a, "value"_a, "weight"_a = 1.0, nb::kw_only(), "rule"_a = "mean", kDocOfMetric)
      .def("_begin_attempt", &begin_attempt)
      .def("_give_up", &give_up, "status"_a, "message"_a, "exit_code"_a)
      .def("backward", &backward, "loss_sum"_a, kDocOfBackward)
      .def("commit", &commit, kDocOfCommit);
}

void bind_next(nb::class_<PySession>& session) {
  using namespace nb::literals;
  session.def(
      "_use",
      [](PySession& self, nb::object before_next, nb::object begin, nb::object backward_of, nb::object finish,
         nb::object before_commit, nb::object committed) {
        self.use({std::move(before_next), std::move(begin), std::move(backward_of), std::move(finish),
                  std::move(before_commit), std::move(committed)});
      },
      "before_next"_a.none(), "begin"_a.none(), "backward"_a.none(), "finish"_a.none(), "before_commit"_a.none(),
      "committed"_a.none());
  session.def("_hand_out", &hand_out, "step_type"_a, "coming_type"_a)
      .def("next", &next)
      .def(
          "_steps",
          [](nb::handle self, nb::object wrapper) {
            return instance_of(PySteps{self.attr("next"), std::move(wrapper)});
          },
          "session"_a)
      .def("coming", &coming, "ahead"_a);
}

}  // namespace pliant::python
