// NULL, handles of another kind and memory that is none are refused by every function that takes a handle.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <thread>

#include "c_handles.hpp"
#include "handle.hpp"

using namespace pliant::test;

namespace {

struct Call {
  const char* name;
  std::function<int32_t(void* handle)> call;
};

template <class Handle>
Handle* as(void* handle) {
  return static_cast<Handle*>(handle);
}

/// Every function with a handle as its first argument, the others being right.
struct EveryCall {
  explicit EveryCall(const CJob& job) : job_(job) {}

  std::vector<Call> all() {
    return {
        {"config_run", [&](void* h) { return pliant_config_run(as<pliant_config_t>(h), &run_, nullptr); }},
        {"config_app_int",
         [&](void* h) { return pliant_config_app_int(as<pliant_config_t>(h), "width", 1, &integer_, nullptr); }},
        {"config_app_float",
         [&](void* h) { return pliant_config_app_float(as<pliant_config_t>(h), "x", 1, &real_, nullptr); }},
        {"config_app_bool",
         [&](void* h) { return pliant_config_app_bool(as<pliant_config_t>(h), "x", 1, &truth_, nullptr); }},
        {"config_app_text",
         [&](void* h) { return pliant_config_app_text(as<pliant_config_t>(h), "x", "", &text_, nullptr); }},
        {"config_check_app",
         [&](void* h) { return pliant_config_check_app(as<pliant_config_t>(h), &text_, 0, nullptr); }},
        {"config_resolved",
         [&](void* h) { return pliant_config_resolved(as<pliant_config_t>(h), &text_, &count_, nullptr); }},
        {"planner_make", [&](void* h) { return pliant_planner_make(as<pliant_config_t>(h), &planner_, nullptr); }},
        {"planner_look",
         [&](void* h) { return pliant_planner_look(as<pliant_planner_t>(h), &planner_facts_, nullptr); }},
        {"planner_plan", [&](void* h) { return pliant_planner_plan(as<pliant_planner_t>(h), 0, &plan_, nullptr); }},
        {"plan_look", [&](void* h) { return pliant_plan_look(as<pliant_plan_t>(h), &plan_facts_, nullptr); }},
        {"plan_nearest",
         [&](void* h) { return pliant_plan_nearest(as<pliant_plan_t>(h), 1, &integer_, nullptr, nullptr); }},
        {"dataset_load", [&](void* h) { return pliant_dataset_load(as<pliant_config_t>(h), &dataset_, nullptr); }},
        {"dataset_look", [&](void* h) { return pliant_dataset_look(as<pliant_dataset_t>(h), &lengths_, nullptr); }},
        {"batches_make of a config",
         [&](void* h) {
           return pliant_batches_make(as<pliant_config_t>(h), plan_of(job_.config.get()).get(), job_.dataset.get(),
                                      &batches_, nullptr);
         }},
        {"batches_make of a plan",
         [&](void* h) {
           return pliant_batches_make(job_.config.get(), as<pliant_plan_t>(h), job_.dataset.get(), &batches_, nullptr);
         }},
        {"batches_open",
         [&](void* h) {
           return pliant_batches_open(as<pliant_config_t>(h), plan_of(job_.config.get()).get(), job_.dataset.get(), "",
                                      0, &batches_, nullptr);
         }},
        {"batches_next", [&](void* h) { return pliant_batches_next(as<pliant_batches_t>(h), &batch_, nullptr); }},
        {"batches_at_step",
         [&](void* h) { return pliant_batches_at_step(as<pliant_batches_t>(h), 0, &batch_, nullptr); }},
        {"batches_batch",
         [&](void* h) { return pliant_batches_batch(as<pliant_batches_t>(h), 0, 0, &batch_, nullptr); }},
        {"batches_epoch",
         [&](void* h) { return pliant_batches_epoch(as<pliant_batches_t>(h), 0, &summary_, nullptr); }},
        {"batches_dropped",
         [&](void* h) { return pliant_batches_dropped(as<pliant_batches_t>(h), 0, nullptr, 0, &count_, nullptr); }},
        {"batches_look", [&](void* h) { return pliant_batches_look(as<pliant_batches_t>(h), &job_facts_, nullptr); }},
        {"batches_job_length",
         [&](void* h) { return pliant_batches_job_length(as<pliant_batches_t>(h), &integer_, &size_, nullptr); }},
        {"batches_save",
         [&](void* h) { return pliant_batches_save(as<pliant_batches_t>(h), nullptr, 0, &count_, nullptr); }},
        {"batches_load", [&](void* h) { return pliant_batches_load(as<pliant_batches_t>(h), "", 0, nullptr); }},
        {"batch_look", [&](void* h) { return pliant_batch_look(as<pliant_batch_t>(h), &view_, nullptr); }},
        {"batch_size", [&](void* h) { return pliant_batch_size(as<pliant_batch_t>(h), &size_, nullptr); }},
        {"micro_batches_make",
         [&](void* h) {
           const auto* const batch = as<pliant_batch_t>(h);
           return pliant_micro_batches_make(&batch, 1, nullptr, 0, &padded_, nullptr);
         }},
        {"micro_batches_of_rows",
         [&](void* h) {
           return pliant_micro_batches_of_rows(as<pliant_batch_t>(h), 0, 1, nullptr, &padded_, nullptr);
         }},
        {"micro_batches_look",
         [&](void* h) { return pliant_micro_batches_look(as<pliant_micro_batches_t>(h), &padded_view_, nullptr); }},
        {"balancer_make", [&](void* h) { return pliant_balancer_make(as<pliant_config_t>(h), &balancer_, nullptr); }},
        {"balancer_look",
         [&](void* h) { return pliant_balancer_look(as<pliant_balancer_t>(h), &balancer_facts_, nullptr); }},
        {"row_costs",
         [&](void* h) { return pliant_row_costs(as<pliant_batch_t>(h), 1, 0, nullptr, 0, &count_, nullptr); }},
        {"balancer_assign",
         [&](void* h) {
           return pliant_balancer_assign(as<pliant_balancer_t>(h), &integer_, 1, nullptr, &assignment_, nullptr);
         }},
        {"assignment_look",
         [&](void* h) { return pliant_assignment_look(as<pliant_assignment_t>(h), &assignment_view_, nullptr); }},
        {"assignment_waiting",
         [&](void* h) {
           return pliant_assignment_waiting(as<pliant_assignment_t>(h), &integer_, 1, &waiting_, nullptr);
         }},
        {"learning_rate_make",
         [&](void* h) { return pliant_learning_rate_make(as<pliant_config_t>(h), nullptr, &rate_, nullptr); }},
        {"learning_rate_needs",
         [&](void* h) { return pliant_learning_rate_needs(as<pliant_learning_rate_t>(h), &needs_, nullptr); }},
        {"learning_rate_set_job_length",
         [&](void* h) {
           return pliant_learning_rate_set_job_length(as<pliant_learning_rate_t>(h), 1, &size_, nullptr);
         }},
        {"learning_rate_scaling",
         [&](void* h) {
           return pliant_learning_rate_scaling(as<pliant_learning_rate_t>(h), 0, &size_, 0, &scaling_, nullptr);
         }},
        {"learning_rate_commit",
         [&](void* h) {
           return pliant_learning_rate_commit(as<pliant_learning_rate_t>(h), 0, &size_, nullptr, 0, nullptr);
         }},
        {"learning_rate_save",
         [&](void* h) {
           return pliant_learning_rate_save(as<pliant_learning_rate_t>(h), nullptr, 0, &count_, nullptr);
         }},
        {"learning_rate_load",
         [&](void* h) { return pliant_learning_rate_load(as<pliant_learning_rate_t>(h), "", 0, nullptr); }},
        {"record_begin",
         [&](void* h) {
           return pliant_record_begin(job_.config.get(), plan_of(job_.config.get()).get(), as<pliant_batches_t>(h),
                                      &record_, nullptr);
         }},
        {"record_open",
         [&](void* h) {
           return pliant_record_open("/nowhere", as<pliant_config_t>(h), plan_of(job_.config.get()).get(),
                                     job_.batches.get(), &record_, nullptr);
         }},
        {"record_look", [&](void* h) { return pliant_record_look(as<pliant_record_t>(h), &record_facts_, nullptr); }},
        {"record_start_generation",
         [&](void* h) { return pliant_record_start_generation(as<pliant_record_t>(h), 1, "start", nullptr); }},
        {"record_commit",
         [&](void* h) { return pliant_record_commit(as<pliant_record_t>(h), nullptr, nullptr, 0, 0, nullptr); }},
        {"record_keep_snapshot",
         [&](void* h) { return pliant_record_keep_snapshot(as<pliant_record_t>(h), nullptr, 0, nullptr, 0, nullptr); }},
        {"record_restore", [&](void* h) { return pliant_record_restore(as<pliant_record_t>(h), &restored_, nullptr); }},
        {"session_config", [&](void* h) { return pliant_session_config(as<pliant_session_t>(h), &config_, nullptr); }},
        {"session_start",
         [&](void* h) { return pliant_session_start(as<pliant_session_t>(h), nullptr, &state_, nullptr); }},
        {"session_next", [&](void* h) { return pliant_session_next(as<pliant_session_t>(h), &step_, nullptr); }},
        {"session_scaling",
         [&](void* h) { return pliant_session_scaling(as<pliant_session_t>(h), &scaling_, nullptr); }},
        {"session_add",
         [&](void* h) { return pliant_session_add(as<pliant_session_t>(h), 0, 0, nullptr, 0, nullptr); }},
        {"session_add_piece",
         [&](void* h) { return pliant_session_add_piece(as<pliant_session_t>(h), 0, 0, 0, nullptr, 1, nullptr); }},
        {"session_commit",
         [&](void* h) { return pliant_session_commit(as<pliant_session_t>(h), &committed_, nullptr); }},
    };
  }
  /// The free functions, which take NULL.
  static std::vector<Call> frees() {
    return {
        {"config_free", [](void* h) { return pliant_config_free(as<pliant_config_t>(h)); }},
        {"planner_free", [](void* h) { return pliant_planner_free(as<pliant_planner_t>(h)); }},
        {"plan_free", [](void* h) { return pliant_plan_free(as<pliant_plan_t>(h)); }},
        {"dataset_free", [](void* h) { return pliant_dataset_free(as<pliant_dataset_t>(h)); }},
        {"batches_free", [](void* h) { return pliant_batches_free(as<pliant_batches_t>(h)); }},
        {"batch_free", [](void* h) { return pliant_batch_free(as<pliant_batch_t>(h)); }},
        {"micro_batches_free", [](void* h) { return pliant_micro_batches_free(as<pliant_micro_batches_t>(h)); }},
        {"balancer_free", [](void* h) { return pliant_balancer_free(as<pliant_balancer_t>(h)); }},
        {"assignment_free", [](void* h) { return pliant_assignment_free(as<pliant_assignment_t>(h)); }},
        {"record_free", [](void* h) { return pliant_record_free(as<pliant_record_t>(h)); }},
        {"session_free", [](void* h) { return pliant_session_free(as<pliant_session_t>(h)); }},
        {"learning_rate_free", [](void* h) { return pliant_learning_rate_free(as<pliant_learning_rate_t>(h)); }},
    };
  }

 private:
  const CJob& job_;
  int64_t integer_ = 0;
  double real_ = 0;
  int32_t truth_ = 0;
  const char* text_ = nullptr;
  uint64_t count_ = 0;
  uint32_t needs_ = 0;
  pliant_planner_t* planner_ = nullptr;
  pliant_plan_t* plan_ = nullptr;
  pliant_dataset_t* dataset_ = nullptr;
  pliant_batches_t* batches_ = nullptr;
  pliant_batch_t* batch_ = nullptr;
  pliant_micro_batches_t* padded_ = nullptr;
  pliant_balancer_t* balancer_ = nullptr;
  pliant_assignment_t* assignment_ = nullptr;
  pliant_learning_rate_t* rate_ = nullptr;
  pliant_config_t* config_ = nullptr;
  pliant_record_t* record_ = nullptr;
  pliant_record_facts_t record_facts_ = PLIANT_INIT(pliant_record_facts_t);
  pliant_restored_t restored_ = PLIANT_INIT(pliant_restored_t);
  pliant_state_t state_ = PLIANT_INIT(pliant_state_t);
  pliant_step_t step_ = PLIANT_INIT(pliant_step_t);
  pliant_committed_t committed_ = PLIANT_INIT(pliant_committed_t);
  pliant_run_options_t run_ = PLIANT_INIT(pliant_run_options_t);
  pliant_planner_facts_t planner_facts_ = PLIANT_INIT(pliant_planner_facts_t);
  pliant_plan_facts_t plan_facts_ = PLIANT_INIT(pliant_plan_facts_t);
  pliant_lengths_t lengths_ = PLIANT_INIT(pliant_lengths_t);
  pliant_epoch_summary_t summary_ = PLIANT_INIT(pliant_epoch_summary_t);
  pliant_job_facts_t job_facts_ = PLIANT_INIT(pliant_job_facts_t);
  pliant_batch_view_t view_ = PLIANT_INIT(pliant_batch_view_t);
  pliant_batch_size_t size_ = PLIANT_INIT(pliant_batch_size_t);
  pliant_micro_batches_view_t padded_view_ = PLIANT_INIT(pliant_micro_batches_view_t);
  pliant_balancer_facts_t balancer_facts_ = PLIANT_INIT(pliant_balancer_facts_t);
  pliant_assignment_view_t assignment_view_ = PLIANT_INIT(pliant_assignment_view_t);
  pliant_waiting_t waiting_ = PLIANT_INIT(pliant_waiting_t);
  pliant_scaling_t scaling_ = PLIANT_INIT(pliant_scaling_t);
};

struct Slow : pliant::capi::SerialHandle<pliant::capi::Tag::kBalancer> {
  static constexpr const char* kName = "balancer";
};

struct Own : pliant::capi::MakerHandle<pliant::capi::Tag::kSession> {
  static constexpr const char* kName = "session";
};

}  // namespace

TEST_CASE("every function refuses NULL for its handle") {
  const CJob job;
  EveryCall calls(job);
  for (const Call& call : calls.all()) {
    CAPTURE(call.name);
    CHECK(call.call(nullptr) == PLIANT_INVALID_ARGUMENT);
    CHECK(last_message().find("is NULL") != std::string::npos);
  }
}

TEST_CASE("every function refuses a handle of another kind and memory that is no handle, and frees neither") {
  const CJob job;
  EveryCall calls(job);
  const auto balancer =
      made_by<OwnedBalancer>([&](auto to, auto error) { return pliant_balancer_make(job.config.get(), to, error); });
  const OwnedPlan plan = plan_of(job.config.get());
  alignas(8) std::array<uint64_t, 64> zeros{};
  std::vector<Call> all = calls.all();
  for (const Call& free : EveryCall::frees()) all.push_back(free);
  for (const Call& call : all) {
    CAPTURE(call.name);
    const bool is_of_balancers =
        std::strncmp(call.name, "balancer_", 9) == 0 && std::strcmp(call.name, "balancer_make") != 0;
    void* const other = is_of_balancers ? static_cast<void*>(plan.get()) : balancer.get();
    CHECK(call.call(other) == PLIANT_INVALID_ARGUMENT);
    CHECK(last_message().find("this is no ") != std::string::npos);
    CHECK(call.call(zeros.data()) == PLIANT_INVALID_ARGUMENT);
    CHECK(call.call(reinterpret_cast<char*>(zeros.data()) + 3) == PLIANT_INVALID_ARGUMENT);
  }
}

TEST_CASE("every function that hands a handle out refuses NULL for its place, and leaves NULL there where it fails") {
  const OwnedConfig config = config_of(kJob);
  CHECK(pliant_planner_make(config.get(), nullptr, nullptr) == PLIANT_INVALID_ARGUMENT);
  auto* planner = reinterpret_cast<pliant_planner_t*>(8);
  CHECK(pliant_planner_make(nullptr, &planner, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(planner == nullptr);
}

TEST_CASE("the free functions take NULL") {
  for (const Call& free : EveryCall::frees()) {
    CAPTURE(free.name);
    CHECK(free.call(nullptr) == PLIANT_OK);
  }
}

TEST_CASE("a call on a handle while another one is under way is refused, and so is freeing it") {
  auto* const slow = new Slow;
  {
    const pliant::capi::Turn turn(slow);
    CHECK_THROWS_WITH(pliant::capi::Turn<Slow>{slow}, "another thread's call on this balancer is under way");
  }
  CHECK_NOTHROW(pliant::capi::Turn<Slow>{slow});
  delete slow;
}

TEST_CASE("a handle that only its maker calls refuses every other thread") {
  Own own;
  CHECK(&pliant::capi::makers(&own) == &own);
  std::string refused;
  std::thread([&] {
    try {
      static_cast<void>(pliant::capi::makers(&own));
    } catch (const pliant::Error& error) {
      refused = error.message();
    }
  }).join();
  CHECK(refused == "this session is called by the thread that made it, and by no other");
}

TEST_CASE("a session outside of a job is refused with exit code 2") {
  pliant_session_t* session = nullptr;
  pliant_error_t error = PLIANT_INIT(pliant_error_t);
  CHECK(pliant_session_attach(&session, &error) == PLIANT_FAILED_PRECONDITION);
  CHECK(error.exit_code == 2);
  CHECK(session == nullptr);
}
