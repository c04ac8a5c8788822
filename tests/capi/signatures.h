/* The functions of pliant.h as they first were: a compiler refuses a second declaration that is another. New ones are
 * appended; none is changed or taken away. */
int32_t pliant_check_version(uint32_t header);
const char* pliant_version(void);
const char* pliant_last_message(uint64_t* bytes);
int32_t pliant_set_log_sink(void (*sink)(void* context, int32_t level, const char* logger, const char* line),
                            void* context, int32_t least, pliant_error_t* error);
int32_t pliant_config_open(const char* file, const pliant_config_options_t* options, pliant_config_t** config,
                           pliant_error_t* error);
int32_t pliant_config_parse(const char* toml, uint64_t bytes, const pliant_config_options_t* options,
                            pliant_config_t** config, pliant_error_t* error);
int32_t pliant_config_free(pliant_config_t* config);
int32_t pliant_config_run(const pliant_config_t* config, pliant_run_options_t* run, pliant_error_t* error);
int32_t pliant_config_app_int(const pliant_config_t* config, const char* key, int64_t otherwise, int64_t* value,
                              pliant_error_t* error);
int32_t pliant_config_app_float(const pliant_config_t* config, const char* key, double otherwise, double* value,
                                pliant_error_t* error);
int32_t pliant_config_app_bool(const pliant_config_t* config, const char* key, int32_t otherwise, int32_t* value,
                               pliant_error_t* error);
int32_t pliant_config_app_text(const pliant_config_t* config, const char* key, const char* otherwise,
                               const char** value, pliant_error_t* error);
int32_t pliant_config_check_app(const pliant_config_t* config, const char* const* keys, uint64_t count,
                                pliant_error_t* error);
int32_t pliant_config_resolved(const pliant_config_t* config, const char** toml, uint64_t* bytes,
                               pliant_error_t* error);
int32_t pliant_planner_make(const pliant_config_t* config, pliant_planner_t** planner, pliant_error_t* error);
int32_t pliant_planner_free(pliant_planner_t* planner);
int32_t pliant_planner_look(const pliant_planner_t* planner, pliant_planner_facts_t* facts, pliant_error_t* error);
int32_t pliant_planner_plan(const pliant_planner_t* planner, int64_t world_size, pliant_plan_t** plan,
                            pliant_error_t* error);
int32_t pliant_plan_free(pliant_plan_t* plan);
int32_t pliant_plan_look(const pliant_plan_t* plan, pliant_plan_facts_t* facts, pliant_error_t* error);
int32_t pliant_plan_nearest(const pliant_plan_t* plan, int64_t world_size, int64_t* below, int64_t* above,
                            pliant_error_t* error);
int32_t pliant_share_of(int64_t rows, int64_t granule, int64_t world_size, int64_t rank, int64_t* first, int64_t* count,
                        pliant_error_t* error);
int32_t pliant_dataset_make(const pliant_lengths_t* lengths, pliant_dataset_t** dataset, pliant_error_t* error);
int32_t pliant_dataset_load(const pliant_config_t* config, pliant_dataset_t** dataset, pliant_error_t* error);
int32_t pliant_dataset_free(pliant_dataset_t* dataset);
int32_t pliant_dataset_look(const pliant_dataset_t* dataset, pliant_lengths_t* lengths, pliant_error_t* error);
int32_t pliant_batches_make(const pliant_config_t* config, const pliant_plan_t* plan, const pliant_dataset_t* dataset,
                            pliant_batches_t** batches, pliant_error_t* error);
int32_t pliant_batches_open(const pliant_config_t* config, const pliant_plan_t* plan, const pliant_dataset_t* dataset,
                            const char* saved, uint64_t bytes, pliant_batches_t** batches, pliant_error_t* error);
int32_t pliant_batches_free(pliant_batches_t* batches);
int32_t pliant_batches_next(pliant_batches_t* batches, pliant_batch_t** batch, pliant_error_t* error);
int32_t pliant_batches_at_step(pliant_batches_t* batches, int64_t step, pliant_batch_t** batch, pliant_error_t* error);
int32_t pliant_batches_batch(pliant_batches_t* batches, int64_t epoch, int64_t index, pliant_batch_t** batch,
                             pliant_error_t* error);
int32_t pliant_batches_epoch(pliant_batches_t* batches, int64_t epoch, pliant_epoch_summary_t* summary,
                             pliant_error_t* error);
int32_t pliant_batches_dropped(pliant_batches_t* batches, int64_t epoch, int64_t* to, uint64_t room, uint64_t* count,
                               pliant_error_t* error);
int32_t pliant_batches_look(pliant_batches_t* batches, pliant_job_facts_t* facts, pliant_error_t* error);
int32_t pliant_batches_job_length(pliant_batches_t* batches, int64_t* steps, pliant_batch_size_t* all,
                                  pliant_error_t* error);
int32_t pliant_batches_save(pliant_batches_t* batches, char* to, uint64_t room, uint64_t* bytes, pliant_error_t* error);
int32_t pliant_batches_load(pliant_batches_t* batches, const char* saved, uint64_t bytes, pliant_error_t* error);
int32_t pliant_batch_look(const pliant_batch_t* batch, pliant_batch_view_t* view, pliant_error_t* error);
int32_t pliant_batch_size(const pliant_batch_t* batch, pliant_batch_size_t* size, pliant_error_t* error);
int32_t pliant_batch_free(pliant_batch_t* batch);
int32_t pliant_micro_batches_make(const pliant_batch_t* const* batches, uint64_t count, const pliant_layout_t* layout,
                                  int64_t rank, pliant_micro_batches_t** micro_batches, pliant_error_t* error);
int32_t pliant_micro_batches_of_rows(const pliant_batch_t* batch, int64_t first, int64_t rows,
                                     const pliant_layout_t* layout, pliant_micro_batches_t** micro_batches,
                                     pliant_error_t* error);
int32_t pliant_micro_batches_free(pliant_micro_batches_t* micro_batches);
int32_t pliant_micro_batches_look(const pliant_micro_batches_t* micro_batches, pliant_micro_batches_view_t* view,
                                  pliant_error_t* error);
int32_t pliant_balancer_make(const pliant_config_t* config, pliant_balancer_t** balancer, pliant_error_t* error);
int32_t pliant_balancer_free(pliant_balancer_t* balancer);
int32_t pliant_balancer_look(const pliant_balancer_t* balancer, pliant_balancer_facts_t* facts, pliant_error_t* error);
int32_t pliant_row_costs(const pliant_batch_t* batch, int64_t per_token, int64_t per_square, int64_t* to, uint64_t room,
                         uint64_t* count, pliant_error_t* error);
int32_t pliant_balancer_assign(pliant_balancer_t* balancer, const int64_t* row_costs, uint64_t rows,
                               const pliant_sharing_t* sharing, pliant_assignment_t** assignment,
                               pliant_error_t* error);
int32_t pliant_share_out(int64_t rows, const pliant_sharing_t* sharing, pliant_assignment_t** assignment,
                         pliant_error_t* error);
int32_t pliant_assignment_free(pliant_assignment_t* assignment);
int32_t pliant_assignment_look(const pliant_assignment_t* assignment, pliant_assignment_view_t* view,
                               pliant_error_t* error);
int32_t pliant_assignment_waiting(const pliant_assignment_t* assignment, const int64_t* row_costs, uint64_t rows,
                                  pliant_waiting_t* waiting, pliant_error_t* error);
int32_t pliant_learning_rate_make(const pliant_config_t* config, const pliant_batch_size_t* mean_batch,
                                  pliant_learning_rate_t** rate, pliant_error_t* error);
int32_t pliant_learning_rate_free(pliant_learning_rate_t* rate);
int32_t pliant_learning_rate_needs(pliant_learning_rate_t* rate, uint32_t* needs, pliant_error_t* error);
int32_t pliant_learning_rate_set_job_length(pliant_learning_rate_t* rate, int64_t steps, const pliant_batch_size_t* all,
                                            pliant_error_t* error);
int32_t pliant_learning_rate_scaling(pliant_learning_rate_t* rate, int64_t step, const pliant_batch_size_t* size,
                                     double base_lr, pliant_scaling_t* scaling, pliant_error_t* error);
int32_t pliant_learning_rate_commit(pliant_learning_rate_t* rate, int64_t step, const pliant_batch_size_t* size,
                                    const pliant_gradient_norms_t* norms, double base_lr, pliant_error_t* error);
int32_t pliant_learning_rate_save(pliant_learning_rate_t* rate, char* to, uint64_t room, uint64_t* bytes,
                                  pliant_error_t* error);
int32_t pliant_learning_rate_load(pliant_learning_rate_t* rate, const char* saved, uint64_t bytes,
                                  pliant_error_t* error);
int32_t pliant_record_begin(const pliant_config_t* config, const pliant_plan_t* plan, pliant_batches_t* batches,
                            pliant_record_t** record, pliant_error_t* error);
int32_t pliant_record_open(const char* directory, const pliant_config_t* config, const pliant_plan_t* plan,
                           pliant_batches_t* batches, pliant_record_t** record, pliant_error_t* error);
int32_t pliant_record_free(pliant_record_t* record);
int32_t pliant_record_look(pliant_record_t* record, pliant_record_facts_t* facts, pliant_error_t* error);
int32_t pliant_record_start_generation(pliant_record_t* record, int64_t world_size, const char* reason,
                                       pliant_error_t* error);
int32_t pliant_record_commit(pliant_record_t* record, const pliant_batch_t* batch,
                             const pliant_assignment_t* assignment, double loss, double learning_rate,
                             pliant_error_t* error);
int32_t pliant_record_keep_snapshot(pliant_record_t* record, const void* state, uint64_t bytes, const char* lr_state,
                                    uint64_t lr_bytes, pliant_error_t* error);
int32_t pliant_record_restore(pliant_record_t* record, pliant_restored_t* restored, pliant_error_t* error);
int32_t pliant_audit_run(const char* directory, pliant_audit_t* audit, pliant_error_t* error);
int32_t pliant_leave_stop_signals_to_agent(void);
int32_t pliant_log_to_stderr(int32_t least, pliant_error_t* error);
int32_t pliant_session_attach(pliant_session_t** session, pliant_error_t* error);
int32_t pliant_session_free(pliant_session_t* session);
int32_t pliant_session_config(pliant_session_t* session, pliant_config_t** config, pliant_error_t* error);
int32_t pliant_session_start(pliant_session_t* session, const pliant_dataset_t* dataset, const pliant_state_t* state,
                             pliant_error_t* error);
int32_t pliant_session_next(pliant_session_t* session, pliant_step_t* step, pliant_error_t* error);
int32_t pliant_session_scaling(pliant_session_t* session, pliant_scaling_t* scaling, pliant_error_t* error);
int32_t pliant_session_add(pliant_session_t* session, uint64_t number, double loss_sum, const float* gradient,
                           uint64_t size, pliant_error_t* error);
int32_t pliant_session_add_piece(pliant_session_t* session, uint64_t number, uint64_t offset, uint64_t count,
                                 const void* piece, int32_t dtype, pliant_error_t* error);
int32_t pliant_session_commit(pliant_session_t* session, pliant_committed_t* committed, pliant_error_t* error);
