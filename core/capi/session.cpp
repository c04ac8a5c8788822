// A worker's side of an elastic job, for C.
#include "pliant/session.hpp"

#include <iterator>
#include <ostream>

#include "handles.hpp"
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
    std::string saved(bytes, '\0');
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
  static void check(int32_t status, const char* what) {
    if (status == PLIANT_OK) return;
    throw pliant::Error(pliant::Status::kInternal, std::string("the program's own ") + what +
                                                       " of its state ended with status " + std::to_string(status));
  }

  pliant_state_t given_;
  std::vector<pliant::StateArray> arrays_;
};

}  // namespace

struct pliant_session_t : pliant::capi::MakerHandle<pliant::capi::Tag::kSession> {
  static constexpr const char* kName = "session";
  explicit pliant_session_t(pliant::Session attached) : session(std::move(attached)) {}

  /// The step that pliant_session_next gave and that was not committed.
  [[nodiscard]] pliant::Step& step_in_hand() const {
    if (step != nullptr) return *step;
    throw pliant::Error(pliant::Status::kFailedPrecondition,
                        "there is no step in hand: call pliant_session_next first");
  }
  [[nodiscard]] const pliant::MicroBatch& micro_batch(uint64_t number) const {
    const auto& all = step_in_hand().micro_batches();
    if (number < all.size()) return all[number];
    throw pliant::capi::wrong("there is no micro-batch " + std::to_string(number) + ": this rank has " +
                              std::to_string(all.size()) + ", counted from 0");
  }
  void take(pliant::Step& next) {
    batch = std::make_unique<pliant_batch_t>(next.batch(), dataset);
    batch->is_lent = true;
    for (const pliant::MicroBatch& micro : next.micro_batches())
      micros.insert(micros.end(), {micro.rows.first, micro.rows.count});
    step = &next;
  }
  void let_go() {
    committed.reset();
    step = nullptr;
    micros.clear();
    batch.reset();
  }

  std::unique_ptr<CState> state;  // outlives the session
  pliant::Session session;
  std::shared_ptr<const pliant::Dataset> dataset;
  pliant::Step* step = nullptr;
  std::unique_ptr<pliant_batch_t> batch;
  std::vector<int64_t> micros;
  std::optional<pliant::Committed> committed;
};

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

int32_t pliant_session_free(pliant_session_t* session) {
  return pliant::capi::answer(nullptr, [&] {
    if (session != nullptr) delete &pliant::capi::makers(session);
  });
}

int32_t pliant_session_config(pliant_session_t* session, pliant_config_t** config, pliant_error_t* error) {
  return pliant::capi::hand_out(
      config, error, [&] { return std::make_unique<pliant_config_t>(pliant::capi::makers(session).session.config()); });
}

int32_t pliant_session_start(pliant_session_t* session, const pliant_dataset_t* dataset, const pliant_state_t* state,
                             pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant_session_t& known = pliant::capi::makers(session);
    if (known.state) throw pliant::Error(pliant::Status::kFailedPrecondition, "this session was started before");
    auto brought = std::make_unique<CState>(pliant::capi::read(state, "state"));
    auto data = dataset != nullptr
                    ? pliant::capi::given(dataset).dataset
                    : std::make_shared<const pliant::Dataset>(pliant::load_dataset(known.session.config()));
    known.state = std::move(brought);  // stays where it is, also where the start fails half-way
    known.session.start(*data, *known.state);
    known.dataset = std::move(data);
  });
}

int32_t pliant_session_next(pliant_session_t* session, pliant_step_t* step, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant_session_t& known = pliant::capi::makers(session);
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

int32_t pliant_session_add(pliant_session_t* session, uint64_t number, double loss_sum, const float* gradient,
                           uint64_t size, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_session_t& known = pliant::capi::makers(session);
    const pliant::MicroBatch& micro = known.micro_batch(number);
    if (gradient == nullptr && size == 0) return known.step->add(micro, loss_sum);
    known.step->add(micro, loss_sum, pliant::capi::given_array(gradient, size, "gradient"));
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

int32_t pliant_session_commit(pliant_session_t* session, pliant_committed_t* committed, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant_session_t& known = pliant::capi::makers(session);
    pliant::capi::check_size(committed, "committed");
    known.committed = known.step_in_hand().commit();
    known.step = nullptr;
    pliant_committed_t made{};
    if (known.committed) {
      const std::span<const float> gradient = known.committed->gradient();
      made.is_committed = 1;
      made.loss = known.committed->loss;
      made.gradient_size = gradient.size();
      made.gradient = gradient.data();
    }
    pliant::capi::write(committed, made, "committed");
  });
}
