// A worker's side of an elastic job, for Python.
#include "session.hpp"

#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>

#include "dataset.hpp"

namespace pliant::python {

namespace {

/// What a program does that is no step. May end on any thread; in a forked process it is the parent's.
struct PyBusy : Serial {
  explicit PyBusy(Busy begun) : busy(std::make_unique<Busy>(std::move(begun))) {}
  ~PyBusy() {
    if (is_of_another_process()) static_cast<void>(busy.release());
  }
  PyBusy(const PyBusy&) = delete;
  PyBusy& operator=(const PyBusy&) = delete;
  void end() {
    if (is_of_another_process()) return;
    without_gil([this] { busy->end(); });
  }
  std::unique_ptr<Busy> busy;
};

/// Stop signals that have their default meaning, for C or for Python, mean nothing from here on. What the program
/// handles itself it goes on to handle.
void leave_default_stop_signals() {
  const nb::object python = nb::module_::import_("signal");
  for (const int number : std::array{SIGINT, SIGTERM, SIGHUP}) {
    const nb::object handler = python.attr("getsignal")(number);
    const bool raises = number == SIGINT && handler.is(python.attr("default_int_handler"));
    if (!raises && !handler.is(python.attr("SIG_DFL"))) continue;
    struct sigaction none {};
    none.sa_handler = [](int signal) { pass_stop_signal(signal); };
    none.sa_flags = SA_RESTART;
    ::sigaction(number, &none, nullptr);
  }
}

std::unique_ptr<PySession> attach(bool leave_stop_signals) {
  auto made = without_gil([] { return std::make_unique<PySession>(Session::attach()); });
  if (leave_stop_signals) leave_default_stop_signals();
  return made;
}

std::unique_ptr<PySession> attach_at(const std::string& address, int64_t rank, int64_t world_size,
                                     bool leave_stop_signals) {
  auto made = without_gil([&] { return std::make_unique<PySession>(Session::attach_at(address, rank, world_size)); });
  if (leave_stop_signals) leave_default_stop_signals();
  return made;
}

PyConfig config_of(PySession& self) {
  const Config& config = self.within().config();
  ConfigNeeds needs{"accelerator", "balancer", "lr", "sampler"};
  if (config.has("elasticity")) needs.insert("elasticity");
  return {std::move(needs), std::make_shared<const Config>(config)};
}

std::unique_ptr<PyBusy> busy(PySession& self, const std::string& what, double at_most) {
  Session& session = self.within();
  return without_gil(
      [&] { return std::make_unique<PyBusy>(session.busy(what, std::chrono::duration<double>(at_most))); });
}

nb::object last_evaluation(PySession& self) {
  const std::optional<Evaluation>& last = self.within().last_evaluation();
  if (!last) return nb::none();
  return nb::make_tuple(last->step, last->ranks, last->lost, nb::cast(last->values));
}

void start(PySession& self, const GivenArray& lengths, const GivenArray& loss_tokens, const std::string& source,
           uint64_t content, const GivenPair& rows, const GivenArray& costs, const GivenArray& row_costs,
           nb::object state, bool is_sharded) {
  const Config& config = self.within().config();
  self.start(std::move(state), dataset_from(config, {lengths, loss_tokens, source, content, rows, costs, row_costs}),
             is_sharded);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  if (!nb::inst_ready(self)) return 0;
  for (PyObject* const held : nb::inst_ptr<PySession>(self)->held()) Py_VISIT(held);
  return 0;
}

int clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<PySession>(self)->clear();
  return 0;
}

PyType_Slot session_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse)}, {Py_tp_clear, reinterpret_cast<void*>(&clear)}, {0, nullptr}};

}  // namespace

PySession::~PySession() {
  end();
}

void PySession::end() {
  if (is_of_another_process()) {
    static_cast<void>(session_.release());
    static_cast<void>(state_.release());
    static_cast<void>(new std::shared_ptr<ShardedCore>(std::move(sharded_)));
    return;
  }
  without_gil([this] {
    if (sharded_) sharded_->model.reset();
    session_.reset();
  });
  sharded_.reset();
  state_.reset();
}

std::vector<PyObject*> PySession::held() const {
  std::vector<PyObject*> all{before_.ptr(),
                             after_.ptr(),
                             step_type_.ptr(),
                             coming_type_.ptr(),
                             hooks_.before_next.ptr(),
                             hooks_.begin.ptr(),
                             hooks_.backward.ptr(),
                             hooks_.finish.ptr(),
                             hooks_.before_commit.ptr(),
                             hooks_.committed.ptr()};
  if (state_) {
    for (PyObject* const one : state_->held()) all.push_back(one);
  }
  return all;
}

void PySession::clear() {
  end();
  before_.reset();
  after_.reset();
  hooks_ = {};
}

void PySession::require_here() const {
  if (is_of_another_process()) {
    throw Error(Status::kFailedPrecondition,
                "this Session is of the process that this one was forked from: only that is a worker; a process that "
                "loads data or evaluates uses no session");
  }
  if (!session_) throw Error(Status::kFailedPrecondition, "this Session has ended");
  if (std::this_thread::get_id() == thread_) return;
  throw Error(Status::kFailedPrecondition,
              "a Session is used by the thread that attached, and this is another one: have it do the work, or attach "
              "in this one");
}

void PySession::start(nb::object state, std::shared_ptr<const PyDataset> dataset, bool is_sharded) {
  require_here();
  if (state_) throw Error(Status::kFailedPrecondition, "Session.start was called twice");
  auto brought = std::make_unique<PyState>(std::move(state), raised_);
  if (sharded_ && sharded_->model && !is_sharded) {
    throw Error(Status::kFailedPrecondition,
                "a model was cut over the ranks of this session: give Session.start what pliant.torch.shard returned");
  }
  if (is_sharded && (!sharded_ || !sharded_->model))
    throw Error(Status::kFailedPrecondition, "the sharded model is of another session");
  call([&](Session& session) {
    if (!is_sharded) return session.start(dataset->get(), *brought);
    session.start(dataset->get(), sharded_->model.value(), *brought);
    sharded_->is_started = true;
  });
  is_on_host_ = session_->config().use("accelerator") == "host";
  state_ = std::move(brought);
  dataset_ = std::move(dataset);
}

void PySession::renew_arrays() {
  require_here();
  const Turn turn(*this, kName);
  if (!state_) throw Error(Status::kFailedPrecondition, "call Session.start first, which asks for the arrays");
  state_->renew_arrays();
}

bool PySession::next() {
  require_here();
  if (undone_) {
    throw Error(Status::kFailedPrecondition,
                "step " + std::to_string(*undone_) +
                    " is final, but its update was not made: an exception came between. This worker does not hold the "
                    "state of the job any more; end the process, another one takes its place");
  }
  require_commit();
  if (StepHooks::is_there(hooks_.before_next)) hooks_.before_next();
  if (!state_) throw Error(Status::kFailedPrecondition, "call Session.start before Session.next");
  if (is_broken_off_) {
    throw Error(Status::kFailedPrecondition,
                "a method of the state raised within Session.next, which did not come to its end: let this process "
                "end, another one takes its place");
  }
  ++serial_;
  step_ = nullptr;
  is_complete_ = is_answered_ = false;
  Step* const next = call([](Session& session) { return session.next(); }, &is_broken_off_);
  drop_pieces();
  if (next == nullptr) {
    batches_.clear();
    return false;
  }
  batches_.erase(batches_.begin(), batches_.lower_bound(next->index()));
  if (next->batch().epoch != epoch_) dataset_->check_unchanged();
  epoch_ = next->batch().epoch;
  step_ = next;
  is_complete_ = next->micro_batches().empty();
  return true;
}

void PySession::require_commit() {
  if (step_ == nullptr) return;
  unanswered_ = is_complete_ && !is_answered_ ? unanswered_ + 1 : 0;
  if (unanswered_ < 2) return;
  throw Error(Status::kFailedPrecondition,
              "step " + std::to_string(step_->index()) + " was handed out " + std::to_string(unanswered_) +
                  " times, all of its micro-batches were added, and it was not committed: call step.commit() once they "
                  "are, and make the update where that gives something");
}

nb::object PySession::ranges_of(const std::vector<RowRange>& micro_batches) {
  const auto are_same = [](const RowRange& one, const RowRange& other) {
    return one.first == other.first && one.count == other.count;
  };
  if (ranges_.is_valid() && std::ranges::equal(micro_batches, ranged_, are_same)) return ranges_;
  const nb::object range = nb::borrow(reinterpret_cast<PyObject*>(&PyRange_Type));
  nb::list made;
  for (const RowRange& rows : micro_batches) made.append(range(rows.first, rows.first + rows.count));
  ranges_ = nb::tuple(made);
  ranged_ = micro_batches;
  return ranges_;
}

nb::object PySession::kept_batch(int64_t index, const std::shared_ptr<const Batch>& batch) {
  nb::object& kept = batches_[index];
  // A step that comes after another history is of other rows only where the sampler broke its word.
  if (!kept.is_valid() || nb::cast<const PyBatch&>(kept).batch->digest != batch->digest)
    kept = instance_of(PyBatch{batch, dataset_});
  return kept;
}

nb::object PySession::batch_in_hand() {
  return kept_batch(step_->index(), step_->shared_batch());
}

nb::object PySession::batch_of(const ComingStep& coming) {
  return kept_batch(coming.index, coming.batch);
}

void PySession::on_snapshot(nb::object before, nb::object after) {
  require_here();
  const Turn turn(*this, kName);
  for (const nb::object& hook : {before, after}) {
    if (!hook.is_none() && PyCallable_Check(hook.ptr()) == 0)
      raise(PyExc_TypeError, "a hook of snapshots is a " + name_of_type(hook) + ": a function or None is needed");
  }
  Session::SnapshotHooks hooks;
  before_ = std::move(before);
  after_ = std::move(after);
  if (!before_.is_none()) hooks.before = [this](int64_t step) { raised_.run([&] { before_(step); }); };
  if (!after_.is_none()) {
    hooks.after = [this](int64_t step, const std::string& file, const std::string& error) {
      raised_.run([&] { after_(step, path_for_python(file), nb::str(error.data(), error.size())); });
    };
  }
  session_->on_snapshot(std::move(hooks));
}

void bind_session(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PyBusy>(module, "Busy")
      .def("end", &PyBusy::end)
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def(
          "__exit__", [](PyBusy& self, nb::handle, nb::handle, nb::handle) { self.end(); }, "type"_a.none(),
          "value"_a.none(), "traceback"_a.none());
  bind_steps(module);
  nb::class_<PySession> session(module, "Session", nb::type_slots(session_slots));
  session.def_static("attach", &attach, "leave_stop_signals"_a = true)
      .def_static("attach_at", &attach_at, "address"_a, "rank"_a, "world_size"_a, "leave_stop_signals"_a)
      .def("end", &PySession::end)
      .def_prop_ro("config", &config_of)
      .def_prop_ro("seed", [](PySession& self) { return self.within().seed(); })
      .def_prop_ro("accelerator", [](PySession& self) { return self.within().config().use("accelerator"); })
      .def_prop_ro("device", [](PySession& self) { return self.call([](Session& of) { return of.device(); }); })
      .def("synchronize",
           [](PySession& self) {
             self.call([](Session& of) { of.stream().synchronize(); });
             self.drop_pieces();
           })
      .def("busy", &busy, "what"_a, "at_most"_a)
      .def(
          "evaluated",
          [](PySession& self, const std::string& name, double value, double weight, const std::string& rule) {
            self.ask([&](Session& of) { give_evaluation(of, name, value, weight, rule); });
          },
          "name"_a, "value"_a, "weight"_a = 1.0, "rule"_a = "mean")
      .def_prop_ro("last_evaluation", &last_evaluation)
      .def(
          "end_after_step",
          [](PySession& self, const std::string& reason) { self.ask([&](Session& of) { of.end_after_step(reason); }); },
          "reason"_a)
      .def("on_snapshot", &PySession::on_snapshot, "before"_a.none(), "after"_a.none())
      .def("start", &start, "lengths"_a.none(), "loss_tokens"_a.none(), "source"_a, "content"_a, "rows"_a.none(),
           "costs"_a.none(), "row_costs"_a.none(), "state"_a.none(), "is_sharded"_a = false)
      .def("renew_arrays", &PySession::renew_arrays);
  bind_next(session);
}

}  // namespace pliant::python
