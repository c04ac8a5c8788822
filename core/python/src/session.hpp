// What is behind Session and Step of the package.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "memory.hpp"
#include "pliant/session.hpp"
#include "raised.hpp"
#include "sharded.hpp"

namespace pliant::python {

/// What a program in Python brings to a job. Its arrays are asked for once: core asks at every step.
class PyState final : public TrainingState {
 public:
  /// `raised`: of the session, and lives as long. Raises what the program does, and what is wrong with what it gives.
  PyState(nb::object program, RaisedWithin& raised);

  [[nodiscard]] uint64_t gradient_size() const override { return gradient_size_; }
  [[nodiscard]] std::string gradient_layout() const override { return gradient_layout_; }
  [[nodiscard]] std::vector<StateArray> arrays() override { return named_.arrays; }
  void save(std::ostream& out) const override;
  void load(std::istream& in) override;

  /// Asks for the arrays again. Throws kFailedPrecondition, and keeps the old ones, where they are others.
  void renew_arrays();
  [[nodiscard]] nb::object program() const { return program_; }
  /// What the collector of garbage is to know of; NULL stands for none.
  [[nodiscard]] std::array<PyObject*, 3> held() const { return {program_.ptr(), save_.ptr(), load_.ptr()}; }

 private:
  nb::object program_;
  nb::object save_;  ///< no object where there is none, and so load_
  nb::object load_;
  RaisedWithin& raised_;
  uint64_t gradient_size_;
  std::string gradient_layout_;
  NamedArrays named_;
};

/// What the state of a program does in a step, as `pliant.elastic.TrainingState` names it; no object, or None, where it
/// has no such method.
struct StepHooks {
  nb::object before_next;
  nb::object begin;
  nb::object backward;
  nb::object finish;  ///< within an attempt
  nb::object before_commit;
  nb::object committed;

  static bool is_there(const nb::object& hook) { return hook.is_valid() && !hook.is_none(); }
};

/// The session. Used by the thread that attached, in the process that did; at its end in another process it is left
/// alone: the threads and the connection are the parent's.
class PySession : public Serial {
 public:
  static constexpr const char* kName = "Session";
  explicit PySession(Session attached) : session_(std::make_unique<Session>(std::move(attached))) {}
  ~PySession();
  PySession(const PySession&) = delete;
  PySession& operator=(const PySession&) = delete;

  /// Leaves the job: no call is possible any more. In another process it does nothing to the job.
  void end();
  /// Throws kFailedPrecondition in another thread or process.
  void require_here() const;
  /// What `work` returns of the session, without the lock of the interpreter: it may wait, and may call the program.
  /// `breaks_off`: set where the program's own code raised within it.
  template <class Work>
  auto call(Work&& work, bool* breaks_off = nullptr) {
    require_here();
    const Turn turn(*this, kName);
    raised_.clear();
    try {
      if constexpr (std::is_void_v<decltype(work(*session_))>) {
        without_gil([&] { work(*session_); });
        raised_.settle();
      } else {
        auto made = without_gil([&] { return work(*session_); });
        raised_.settle();
        return made;
      }
    } catch (const Raised&) {
      if (breaks_off != nullptr) *breaks_off = true;
      raised_.rethrow();
    } catch (const Error& error) {
      raised_.throw_behind(error);
    }
  }
  /// The same of one that neither waits nor calls the program, with the lock.
  template <class Work>
  auto ask(Work&& work) {
    require_here();
    const Turn turn(*this, kName);
    return work(*session_);
  }
  /// The session for what may be called within its calls, too.
  [[nodiscard]] Session& within() {
    require_here();
    return *session_;
  }

  /// `is_sharded`: with the model that keep() was given last; `state` is the rest.
  void start(nb::object state, std::shared_ptr<const PyDataset> dataset, bool is_sharded);
  /// A sharded model was made of this session, which ends after it.
  void keep(std::shared_ptr<ShardedCore> sharded) { sharded_ = std::move(sharded); }
  [[nodiscard]] RaisedWithin& raised() { return raised_; }
  void renew_arrays();
  /// Which classes steps are of. Called before the first `next`.
  void hand_out(nb::object step_type, nb::object coming_type) {
    step_type_ = std::move(step_type);
    coming_type_ = std::move(coming_type);
  }
  [[nodiscard]] nb::handle step_type() const { return step_type_; }
  [[nodiscard]] nb::handle coming_type() const { return coming_type_; }
  void use(StepHooks hooks) { hooks_ = std::move(hooks); }
  [[nodiscard]] const StepHooks& hooks() const { return hooks_; }
  /// What start() was given.
  [[nodiscard]] nb::object program() const { return state_ ? state_->program() : nb::none(); }
  /// False at the end of the job.
  bool next();
  /// Step `index` is final, and an exception kept its update from being made: there are no more steps.
  void leave_undone(int64_t index) { undone_ = index; }
  /// All micro-batches of the step in hand were added.
  void note_complete() { is_complete_ = true; }
  /// Its commit was called, or its passes were given up.
  void note_answered() { is_answered_ = true; }
  /// `micro_batches` as a tuple of ranges: the same one as last time where they are the same.
  nb::object ranges_of(const std::vector<RowRange>& micro_batches);
  void on_snapshot(nb::object before, nb::object after);
  /// The batch of the step in hand, and of the one that is `ahead` of it: the same object each time.
  nb::object batch_in_hand();
  nb::object batch_of(const ComingStep& coming);

  [[nodiscard]] uint64_t serial() const { return serial_; }
  /// The mean gradient lies in memory of the CPU, whatever is asked for.
  [[nodiscard]] bool is_on_host() const { return is_on_host_; }
  [[nodiscard]] uint64_t gradient_size() const { return state_->gradient_size(); }
  [[nodiscard]] Step& step_in_hand() const { return *step_; }
  /// Has `piece` live until the device has read it.
  void keep(PieceOfGradient piece) { read_later_.push_back(std::move(piece)); }
  void drop_pieces() { read_later_.clear(); }

  /// What the collector of garbage is to know of.
  [[nodiscard]] std::vector<PyObject*> held() const;
  /// It is reached from nowhere: what it holds goes, and with it cycles.
  void clear();

 private:
  nb::object kept_batch(int64_t index, const std::shared_ptr<const Batch>& batch);
  /// A step without its commit is handed out again, without end. Once may be an exception that the program has caught.
  void require_commit();

  const std::thread::id thread_ = std::this_thread::get_id();
  RaisedWithin raised_;
  nb::object before_;
  nb::object after_;
  nb::object step_type_;
  nb::object coming_type_;
  std::unique_ptr<PyState> state_;        // outlives the session
  std::shared_ptr<ShardedCore> sharded_;  // whose model ends before the session
  std::unique_ptr<Session> session_;
  std::shared_ptr<const PyDataset> dataset_;
  bool is_on_host_ = false;
  int64_t epoch_ = -1;          // of the last step
  bool is_broken_off_ = false;  // a `next` was: what the agent waits for was not sent
  bool is_complete_ = false;    // the step in hand, and so below
  bool is_answered_ = false;
  int64_t unanswered_ = 0;  // how many in a row were complete, and the next one was asked for without their commit
  std::optional<int64_t> undone_;
  StepHooks hooks_;
  Step* step_ = nullptr;
  uint64_t serial_ = 0;                    // of the step in hand: rises with each
  std::map<int64_t, nb::object> batches_;  // by step: that in hand, and those to come
  std::vector<RowRange> ranged_;           // of what ranges_ was made
  nb::object ranges_;
  std::vector<PieceOfGradient> read_later_;
};

/// Session::evaluated, with the rule by its name.
void give_evaluation(Session& to, const std::string& name, double value, double weight, const std::string& rule);

void bind_steps(nb::module_& module);
void bind_next(nb::class_<PySession>& session);

}  // namespace pliant::python
