// A worker's side of an elastic job, for C.
#include <chrono>
#include <exception>
#include <istream>
#include <iterator>
#include <ostream>

#include "session_handle.hpp"
#include "structs.hpp"

namespace {

/// What a C program brings to a job.
class CState final : public pliant::TrainingState {
 public:
  explicit CState(const pliant_state_t& given) : given_(given) {
    if ((given.save == nullptr) != (given.load == nullptr))
      throw pliant::capi::wrong("state has save or load, not both");
    if (given.array_count == 0) return;
    pliant::capi::check_size(given.arrays, "state.arrays");
    const uint32_t stride = given.arrays->struct_size;
    if (stride % alignof(pliant_state_array_t) != 0)
      throw pliant::capi::wrong(
          "struct_size of state.arrays is no multiple of 8: structs behind each other would be torn");
    const auto* at = reinterpret_cast<const unsigned char*>(given.arrays);
    for (uint64_t i = 0; i < given.array_count; ++i, at += stride) {
      const auto& array = *reinterpret_cast<const pliant_state_array_t*>(at);
      if (array.struct_size != stride) throw pliant::capi::wrong("structs of state.arrays have several sizes");
      add(pliant::capi::read(&array, "state.arrays"));
    }
  }

  [[nodiscard]] uint64_t gradient_size() const override { return given_.gradient_size; }
  [[nodiscard]] std::vector<pliant::StateArray> arrays() override { return arrays_; }
  void save(std::ostream& out) const override {
    if (given_.save == nullptr) return;
    uint64_t bytes = 0;
    check(given_.save(given_.context, nullptr, 0, &bytes), "save");
    std::string saved = room_for(bytes);
    check(given_.save(given_.context, saved.data(), saved.size(), &bytes), "save");
    if (bytes != saved.size()) throw pliant::capi::wrong("save wrote another number of bytes than it announced");
    out.write(saved.data(), static_cast<std::streamsize>(saved.size()));
  }
  void load(std::istream& in) override {
    if (given_.load == nullptr) return;
    const std::string saved{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    check(given_.load(given_.context, saved.data(), saved.size()), "load");
  }

 private:
  void add(const pliant_state_array_t& array) {
    pliant::capi::require(array.name, "the name of an array of the state");
    if (array.dtype < PLIANT_DTYPE_F32 || array.dtype > PLIANT_DTYPE_BF16)
      throw pliant::capi::wrong(std::string("the array '") + array.name + "' has a dtype that is none");
    const auto shape = pliant::capi::given_array(array.shape, array.dimensions, "the shape of an array of the state");
    arrays_.push_back(
        {array.name, static_cast<pliant::DType>(array.dtype), {shape.begin(), shape.end()}, array.memory});
  }
  static std::string room_for(uint64_t bytes) {
    try {
      return std::string(bytes, '\0');
    } catch (const std::exception&) {  // std::length_error, std::bad_alloc
      throw pliant::Error(pliant::Status::kResourceExhausted,
                          "save announced " + std::to_string(bytes) + " bytes, which is more than there is memory for");
    }
  }
  static void check(int32_t status, const char* what) {
    if (status == PLIANT_OK) return;
    throw pliant::Error(pliant::Status::kInternal, std::string("the program's own ") + what +
                                                       " of its state ended with status " + std::to_string(status));
  }

  pliant_state_t given_;
  std::vector<pliant::StateArray> arrays_;
};

}  // namespace

std::unique_ptr<pliant::TrainingState> pliant::capi::training_state_of(const pliant_state_t& given) {
  return std::make_unique<CState>(given);
}

int32_t pliant_leave_stop_signals_to_agent() {
  return pliant::capi::answer(nullptr, [] { pliant::leave_stop_signals_to_agent(); });
}

int32_t pliant_log_to_stderr(int32_t least, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] { pliant::log_to_stderr(pliant::capi::log_level_of(least)); });
}

int32_t pliant_session_attach(pliant_session_t** session, pliant_error_t* error) {
  return pliant::capi::hand_out(session, error,
                                [] { return std::make_unique<pliant_session_t>(pliant::Session::attach()); });
}

int32_t pliant_session_attach_at(pliant_session_t** session, const char* address, int64_t rank, int64_t world_size,
                                 pliant_error_t* error) {
  return pliant::capi::hand_out(session, error, [&] {
    pliant::capi::require(address, "address");
    return std::make_unique<pliant_session_t>(pliant::Session::attach_at(address, rank, world_size));
  });
}

// Nothing but this: what other functions do around a call is not async-signal-safe.
int32_t pliant_pass_stop_signal(int32_t number) {
  pliant::pass_stop_signal(number);
  return PLIANT_OK;
}

int32_t pliant_session_free(pliant_session_t* session) {
  return pliant::capi::answer(nullptr, [&] {
    if (session == nullptr) return;
    const pliant_session_t& gone = pliant::capi::makers(session);
    const auto refuse = [](const char* why) {
      throw pliant::Error(pliant::Status::kFailedPrecondition, std::string("this session is not freed: ") + why);
    };
    if (gone.calls > 0) refuse("a call on it is under way");
    if (gone.sharded) pliant::capi::require_idle(*gone.sharded, gone.kName);
    // The last that is asked: from here on the stream takes no call.
    if (gone.stream && gone.stream->is_busy.exchange(true, std::memory_order_acquire))
      refuse("a call on its stream is under way");
    delete session;
  });
}

int32_t pliant_session_config(pliant_session_t* session, pliant_config_t** config, pliant_error_t* error) {
  return pliant::capi::hand_out(
      config, error, [&] { return std::make_unique<pliant_config_t>(pliant::capi::makers(session).session.config()); });
}

int32_t pliant_session_begin_busy(pliant_session_t* session, const char* what, double at_most_s,
                                  pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant_session_t& known = pliant::capi::makers(session);
    pliant::capi::require(what, "what");
    known.busy.push_back(known.session.busy(what, std::chrono::duration<double>(at_most_s)));
  });
}

int32_t pliant_session_end_busy(pliant_session_t* session, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant_session_t& known = pliant::capi::makers(session);
    if (known.busy.empty()) {
      throw pliant::Error(pliant::Status::kFailedPrecondition,
                          "the session is not busy: call pliant_session_begin_busy first");
    }
    known.busy.pop_back();
  });
}

int32_t pliant_session_start(pliant_session_t* session, const pliant_dataset_t* dataset, const pliant_state_t* state,
                             pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::capi::SessionCall call(session);
    pliant_session_t& known = call.session();
    pliant::capi::start_session(
        known, dataset, pliant::capi::read(state, "state"),
        [&known](const pliant::Dataset& data, pliant::TrainingState& brought) { known.session.start(data, brought); });
  });
}

int32_t pliant_session_on_snapshot(pliant_session_t* session, int32_t (*before)(void* context, int64_t step),
                                   void (*after)(void* context, int64_t step, const char* file, const char* why),
                                   void* context, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant::Session::SnapshotHooks hooks;
    if (before != nullptr) {
      hooks.before = [before, context](int64_t step) {
        const int32_t status = before(context, step);
        if (status == PLIANT_OK) return;
        throw pliant::Error(pliant::Status::kInternal, "it ended with status " + std::to_string(status));
      };
    }
    if (after != nullptr) {
      hooks.after = [after, context](int64_t step, const std::string& file, const std::string& why) {
        after(context, step, file.c_str(), why.c_str());
      };
    }
    pliant::capi::makers(session).session.on_snapshot(std::move(hooks));
  });
}

int32_t pliant_session_next(pliant_session_t* session, pliant_step_t* step, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::capi::SessionCall call(session);
    pliant_session_t& known = call.session();
    pliant::capi::check_size(step, "step");
    known.let_go();
    pliant_step_t made{};
    if (pliant::Step* const next = known.session.next(); next != nullptr) {
      known.take(*next);
      made.batch = known.batch.get();
      made.index = next->index();
      made.rank = next->rank();
      made.world_size = next->world_size();
      made.learning_rate = next->learning_rate();
      made.micro_batch_count = known.micros.size() / 2;
      made.micro_batches = known.micros.data();
      made.shares = next->shares();
    }
    pliant::capi::write(step, made, "step");
  });
}

int32_t pliant_session_coming(pliant_session_t* session, int64_t ahead, pliant_step_t* step, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant_session_t& known = pliant::capi::makers(session);
    pliant::capi::check_size(step, "step");
    pliant_step_t made{};
    if (const pliant::ComingStep* const coming = known.session.coming(ahead); coming != nullptr) {
      pliant_session_t::Coming& lent = known.coming[ahead];  // what was lent before stays where it is
      if (!lent.batch) {
        lent.batch = std::make_unique<pliant_batch_t>(coming->batch, known.dataset);
        lent.batch->is_lent = true;
        for (const pliant::RowRange rows : coming->micro_batches)
          lent.micros.insert(lent.micros.end(), {rows.first, rows.count});
        lent.shares = coming->shares;
      }
      made.batch = lent.batch.get();
      made.index = coming->index;
      made.rank = known.last_step != nullptr ? known.last_step->rank() : 0;
      made.world_size = known.last_step != nullptr ? known.last_step->world_size() : 0;
      made.micro_batch_count = lent.micros.size() / 2;
      made.micro_batches = lent.micros.data();
      made.shares = lent.shares;
    }
    pliant::capi::write(step, made, "step");
  });
}

int32_t pliant_session_scaling(pliant_session_t* session, pliant_scaling_t* scaling, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Scaling& known = pliant::capi::makers(session).step_in_hand().scaling();
    pliant::capi::write(scaling, pliant::capi::from_scaling(known), "scaling");
  });
}

int32_t pliant_session_scaling_of(pliant_session_t* session, double base_lr, pliant_scaling_t* scaling,
                                  pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Scaling known = pliant::capi::makers(session).step_in_hand().scaling(base_lr);
    pliant::capi::write(scaling, pliant::capi::from_scaling(known), "scaling");
  });
}

int32_t pliant_session_scaling_of_group(pliant_session_t* session, const char* group, pliant_scaling_t* scaling,
                                        pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant_session_t& known = pliant::capi::makers(session);
    pliant::capi::require(group, "group");
    const pliant::Scaling found = known.step_in_hand().scaling(std::string_view(group));
    pliant::capi::write(scaling, pliant::capi::from_scaling(found), "scaling");
  });
}

int32_t pliant_session_add(pliant_session_t* session, uint64_t number, double loss_sum, const float* gradient,
                           uint64_t size, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_session_t& known = pliant::capi::makers(session);
    const pliant::RowRange rows = known.micro_batch(number);
    if (gradient == nullptr && size == 0) return known.step->add(rows, loss_sum);
    known.step->add(rows, loss_sum, pliant::capi::given_array(gradient, size, "gradient"));
  });
}

int32_t pliant_session_add_piece(pliant_session_t* session, uint64_t number, uint64_t offset, uint64_t count,
                                 const void* piece, int32_t dtype, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_session_t& known = pliant::capi::makers(session);
    if (count > 0) pliant::capi::require(piece, "piece");
    known.step_in_hand().add_piece(known.micro_batch(number),
                                   {offset, count, piece, static_cast<pliant::DType>(dtype)});
  });
}

namespace {

/// Gives `to`, a step or the session behind a handle, one value: their functions are of one shape.
template <class To>
void give_metric(To& to, void (To::*give)(std::string_view, double, double),
                 void (To::*give_by)(std::string_view, double, pliant::MetricRule), const char* name, double value,
                 double weight, int32_t rule) {
  pliant::capi::require(name, "name");
  if (rule < PLIANT_METRIC_MEAN || rule > PLIANT_METRIC_MIN)
    throw pliant::capi::wrong("rule is " + std::to_string(rule) + ", which is no PLIANT_METRIC_...");
  if (rule == PLIANT_METRIC_MEAN) return (to.*give)(name, value, weight);
  (to.*give_by)(name, value, static_cast<pliant::MetricRule>(rule - PLIANT_METRIC_MEAN));
}

}  // namespace

int32_t pliant_session_metric(pliant_session_t* session, const char* name, double value, double weight, int32_t rule,
                              pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant::Step& step = pliant::capi::makers(session).step_in_hand();
    give_metric<pliant::Step>(step, &pliant::Step::metric, &pliant::Step::metric, name, value, weight, rule);
  });
}

int32_t pliant_session_evaluated(pliant_session_t* session, const char* name, double value, double weight, int32_t rule,
                                 pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant::Session& known = pliant::capi::makers(session).session;
    give_metric<pliant::Session>(known, &pliant::Session::evaluated, &pliant::Session::evaluated, name, value, weight,
                                 rule);
  });
}

int32_t pliant_session_last_evaluation(pliant_session_t* session, const char* name, double* value, int64_t* step,
                                       pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant_session_t& known = pliant::capi::makers(session);
    pliant::capi::require(name, "name");
    pliant::capi::require(value, "value");
    const std::optional<pliant::Evaluation>& last = known.session.last_evaluation();
    const bool is_there = last && last->values.contains(name);
    *value = is_there ? last->values.at(name) : 0;
    if (step != nullptr) *step = is_there ? last->step : -1;
  });
}

int32_t pliant_session_end_after_step(pliant_session_t* session, const char* reason, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant_session_t& known = pliant::capi::makers(session);
    pliant::capi::require(reason, "reason");
    known.session.end_after_step(reason);
  });
}

namespace {

int32_t commit_step(pliant_session_t* session, pliant_committed_t* committed, bool on_device, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant_session_t& known = pliant::capi::makers(session);
    pliant::capi::check_size(committed, "committed");
    known.committed = known.step_in_hand().commit();
    known.step = nullptr;
    pliant_committed_t made{};
    if (known.committed) {
      std::span<const float> gradient = known.committed->device_gradient();  // empty where the model is sharded
      if (!on_device && !gradient.empty()) gradient = known.committed->gradient();
      made.is_committed = 1;
      made.loss = known.committed->loss;
      made.gradient_size = gradient.size();
      made.gradient = gradient.data();
    }
    pliant::capi::write(committed, made, "committed");
  });
}

}  // namespace

int32_t pliant_session_commit(pliant_session_t* session, pliant_committed_t* committed, pliant_error_t* error) {
  return commit_step(session, committed, false, error);
}

int32_t pliant_session_commit_on_device(pliant_session_t* session, pliant_committed_t* committed,
                                        pliant_error_t* error) {
  return commit_step(session, committed, true, error);
}
