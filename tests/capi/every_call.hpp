// Every function of pliant.h with a handle, the other arguments being right as far as that is possible without one.
#pragma once

#include <vector>

#include "c_handles.hpp"
#include "device_calls.hpp"

namespace pliant::test {

/// Every function with a handle as its first argument, the others being right.
struct EveryCall {
  explicit EveryCall(const CJob& job) : job_(job) {}

  std::vector<Call> all() {
    std::vector<Call> calls = of_data();
    const std::vector<Call> more = devices_.all();
    calls.insert(calls.end(), more.begin(), more.end());
    return calls;
  }
  std::vector<Call> of_data() {
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
        {"config_refuse_app",
         [&](void* h) { return pliant_config_refuse_app(as<pliant_config_t>(h), "width", "is odd", nullptr); }},
        {"config_has", [&](void* h) { return pliant_config_has(as<pliant_config_t>(h), "lr", &truth_, nullptr); }},
        {"config_use", [&](void* h) { return pliant_config_use(as<pliant_config_t>(h), "lr", &text_, nullptr); }},
        {"config_with",
         [&](void* h) { return pliant_config_with(as<pliant_config_t>(h), nullptr, 0, &config_, nullptr); }},
        {"config_data", [&](void* h) { return pliant_config_data(as<pliant_config_t>(h), &data_, nullptr); }},
        {"config_lr", [&](void* h) { return pliant_config_lr(as<pliant_config_t>(h), &lr_, nullptr); }},
        {"imported_look", [&](void* h) { return pliant_imported_look(as<pliant_imported_t>(h), &imported_, nullptr); }},
        {"plan_make", [&](void* h) { return pliant_plan_make(as<pliant_config_t>(h), 0, &plan_, nullptr); }},
        {"check_scheduler", [&](void* h) { return pliant_check_scheduler(as<pliant_config_t>(h), nullptr); }},
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
        {"batches_rows",
         [&](void* h) { return pliant_batches_rows(as<pliant_batches_t>(h), 0, 0, 1, &batch_, nullptr); }},
        {"batches_has_step",
         [&](void* h) { return pliant_batches_has_step(as<pliant_batches_t>(h), 0, &truth_, nullptr); }},
        {"batches_seek", [&](void* h) { return pliant_batches_seek(as<pliant_batches_t>(h), 0, nullptr); }},
        {"batches_truncated",
         [&](void* h) { return pliant_batches_truncated(as<pliant_batches_t>(h), 0, nullptr, 0, &count_, nullptr); }},
        {"batches_packing",
         [&](void* h) { return pliant_batches_packing(as<pliant_batches_t>(h), 0, &packing_, nullptr); }},
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
        {"record_open of batches",
         [&](void* h) {
           return pliant_record_open("/nowhere", job_.config.get(), plan_of(job_.config.get()).get(),
                                     as<pliant_batches_t>(h), &record_, nullptr);
         }},
        {"record_look", [&](void* h) { return pliant_record_look(as<pliant_record_t>(h), &record_facts_, nullptr); }},
        {"record_start_generation",
         [&](void* h) { return pliant_record_start_generation(as<pliant_record_t>(h), 1, "start", nullptr); }},
        {"record_commit",
         [&](void* h) { return pliant_record_commit(as<pliant_record_t>(h), nullptr, nullptr, 0, 0, nullptr); }},
        {"record_keep_snapshot",
         [&](void* h) { return pliant_record_keep_snapshot(as<pliant_record_t>(h), nullptr, 0, nullptr, 0, nullptr); }},
        {"record_restore", [&](void* h) { return pliant_record_restore(as<pliant_record_t>(h), &restored_, nullptr); }},
        {"record_keep_pieces",
         [&](void* h) {
           const auto nothing = [](void*, const void**, uint64_t*) { return int32_t{0}; };
           return pliant_record_keep_pieces(as<pliant_record_t>(h), nothing, nullptr, nullptr, 0, nullptr);
         }},
        {"record_restore_pieces",
         [&](void* h) {
           const auto nothing = [](void*, const void*, uint64_t) { return int32_t{0}; };
           return pliant_record_restore_pieces(as<pliant_record_t>(h), nothing, nullptr, &restored_, nullptr);
         }},
        {"report_look", [&](void* h) { return pliant_report_look(as<pliant_report_t>(h), &report_, nullptr); }},
        {"comparison_look",
         [&](void* h) { return pliant_comparison_look(as<pliant_comparison_t>(h), &comparison_, nullptr); }},
        {"session_config", [&](void* h) { return pliant_session_config(as<pliant_session_t>(h), &config_, nullptr); }},
        {"session_begin_busy",
         [&](void* h) { return pliant_session_begin_busy(as<pliant_session_t>(h), "x", 1, nullptr); }},
        {"session_end_busy", [&](void* h) { return pliant_session_end_busy(as<pliant_session_t>(h), nullptr); }},
        {"session_on_snapshot",
         [&](void* h) {
           return pliant_session_on_snapshot(as<pliant_session_t>(h), nullptr, nullptr, nullptr, nullptr);
         }},
        {"session_coming", [&](void* h) { return pliant_session_coming(as<pliant_session_t>(h), 1, &step_, nullptr); }},
        {"session_scaling_of",
         [&](void* h) { return pliant_session_scaling_of(as<pliant_session_t>(h), 1, &scaling_, nullptr); }},
        {"session_scaling_of_group",
         [&](void* h) { return pliant_session_scaling_of_group(as<pliant_session_t>(h), "x", &scaling_, nullptr); }},
        {"session_metric",
         [&](void* h) {
           return pliant_session_metric(as<pliant_session_t>(h), "x", 1, 1, PLIANT_METRIC_MEAN, nullptr);
         }},
        {"session_evaluated",
         [&](void* h) {
           return pliant_session_evaluated(as<pliant_session_t>(h), "x", 1, 1, PLIANT_METRIC_MEAN, nullptr);
         }},
        {"session_last_evaluation",
         [&](void* h) {
           return pliant_session_last_evaluation(as<pliant_session_t>(h), "x", &real_, &integer_, nullptr);
         }},
        {"session_end_after_step",
         [&](void* h) { return pliant_session_end_after_step(as<pliant_session_t>(h), "x", nullptr); }},
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
    std::vector<Call> calls = DeviceCalls::frees();
    const std::vector<Call> more = frees_of_data();
    calls.insert(calls.end(), more.begin(), more.end());
    return calls;
  }
  static std::vector<Call> frees_of_data() {
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
        {"imported_free", [](void* h) { return pliant_imported_free(as<pliant_imported_t>(h)); }},
        {"report_free", [](void* h) { return pliant_report_free(as<pliant_report_t>(h)); }},
        {"comparison_free", [](void* h) { return pliant_comparison_free(as<pliant_comparison_t>(h)); }},
        {"record_free", [](void* h) { return pliant_record_free(as<pliant_record_t>(h)); }},
        {"session_free", [](void* h) { return pliant_session_free(as<pliant_session_t>(h)); }},
        {"learning_rate_free", [](void* h) { return pliant_learning_rate_free(as<pliant_learning_rate_t>(h)); }},
    };
  }

 private:
  const CJob& job_;
  DeviceCalls devices_;
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
  pliant_data_options_t data_ = PLIANT_INIT(pliant_data_options_t);
  pliant_lr_options_t lr_ = PLIANT_INIT(pliant_lr_options_t);
  pliant_imported_view_t imported_ = PLIANT_INIT(pliant_imported_view_t);
  pliant_packing_t packing_ = PLIANT_INIT(pliant_packing_t);
  pliant_report_view_t report_ = PLIANT_INIT(pliant_report_view_t);
  pliant_comparison_view_t comparison_ = PLIANT_INIT(pliant_comparison_view_t);
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

}  // namespace pliant::test
