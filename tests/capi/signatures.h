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
int32_t pliant_session_attach_at(pliant_session_t** session, const char* address, int64_t rank, int64_t world_size,
                                 pliant_error_t* error);
int32_t pliant_pass_stop_signal(int32_t number);
int32_t pliant_session_free(pliant_session_t* session);
int32_t pliant_session_config(pliant_session_t* session, pliant_config_t** config, pliant_error_t* error);
int32_t pliant_session_begin_busy(pliant_session_t* session, const char* what, double at_most_s, pliant_error_t* error);
int32_t pliant_session_end_busy(pliant_session_t* session, pliant_error_t* error);
int32_t pliant_session_start(pliant_session_t* session, const pliant_dataset_t* dataset, const pliant_state_t* state,
                             pliant_error_t* error);
int32_t pliant_session_on_snapshot(pliant_session_t* session, int32_t (*before)(void* context, int64_t step),
                                   void (*after)(void* context, int64_t step, const char* file, const char* why),
                                   void* context, pliant_error_t* error);
int32_t pliant_session_next(pliant_session_t* session, pliant_step_t* step, pliant_error_t* error);
int32_t pliant_session_coming(pliant_session_t* session, int64_t ahead, pliant_step_t* step, pliant_error_t* error);
int32_t pliant_session_scaling(pliant_session_t* session, pliant_scaling_t* scaling, pliant_error_t* error);
int32_t pliant_session_scaling_of_group(pliant_session_t* session, const char* group, pliant_scaling_t* scaling,
                                        pliant_error_t* error);
int32_t pliant_session_scaling_of(pliant_session_t* session, double base_lr, pliant_scaling_t* scaling,
                                  pliant_error_t* error);
int32_t pliant_session_add(pliant_session_t* session, uint64_t number, double loss_sum, const float* gradient,
                           uint64_t size, pliant_error_t* error);
int32_t pliant_session_add_piece(pliant_session_t* session, uint64_t number, uint64_t offset, uint64_t count,
                                 const void* piece, int32_t dtype, pliant_error_t* error);
int32_t pliant_session_metric(pliant_session_t* session, const char* name, double value, double weight, int32_t rule,
                              pliant_error_t* error);
int32_t pliant_session_evaluated(pliant_session_t* session, const char* name, double value, double weight, int32_t rule,
                                 pliant_error_t* error);
int32_t pliant_session_last_evaluation(pliant_session_t* session, const char* name, double* value, int64_t* step,
                                       pliant_error_t* error);
int32_t pliant_session_end_after_step(pliant_session_t* session, const char* reason, pliant_error_t* error);
int32_t pliant_session_commit(pliant_session_t* session, pliant_committed_t* committed, pliant_error_t* error);
int32_t pliant_session_commit_on_device(pliant_session_t* session, pliant_committed_t* committed,
                                        pliant_error_t* error);
int32_t pliant_accelerator_make(const pliant_config_t* config, pliant_accelerator_t** accelerator,
                                pliant_error_t* error);
int32_t pliant_session_accelerator(pliant_session_t* session, pliant_accelerator_t** accelerator,
                                   pliant_error_t* error);
int32_t pliant_accelerator_free(pliant_accelerator_t* accelerator);
int32_t pliant_accelerator_look(const pliant_accelerator_t* accelerator, pliant_accelerator_facts_t* facts,
                                pliant_error_t* error);
int32_t pliant_accelerator_device(const pliant_accelerator_t* accelerator, int32_t device, pliant_device_t* facts,
                                  pliant_error_t* error);
int32_t pliant_buffer_make(const pliant_accelerator_t* accelerator, int32_t device, uint64_t bytes, int32_t kind,
                           pliant_buffer_t** buffer, pliant_error_t* error);
int32_t pliant_buffer_free(pliant_buffer_t* buffer);
int32_t pliant_buffer_look(const pliant_buffer_t* buffer, void** memory, uint64_t* bytes, pliant_error_t* error);
int32_t pliant_stream_make(const pliant_accelerator_t* accelerator, int32_t device, int32_t role, int32_t priority,
                           pliant_stream_t** stream, pliant_error_t* error);
int32_t pliant_session_stream(pliant_session_t* session, pliant_stream_t** stream, int32_t* device,
                              pliant_error_t* error);
int32_t pliant_stream_free(pliant_stream_t* stream);
int32_t pliant_stream_synchronize(pliant_stream_t* stream, pliant_error_t* error);
int32_t pliant_stream_is_idle(pliant_stream_t* stream, int32_t* is_idle, pliant_error_t* error);
int32_t pliant_stream_copy(pliant_stream_t* stream, void* to, const void* from, uint64_t bytes, pliant_error_t* error);
int32_t pliant_stream_fill(pliant_stream_t* stream, void* to, uint8_t byte, uint64_t bytes, pliant_error_t* error);
int32_t pliant_stream_reduce(pliant_stream_t* stream, void* to, const void* const* from, uint64_t sources,
                             uint64_t count, int32_t dtype, int32_t op, double scale, pliant_error_t* error);
int32_t pliant_stream_cast(pliant_stream_t* stream, void* to, int32_t to_dtype, const void* from, int32_t from_dtype,
                           uint64_t count, pliant_error_t* error);
int32_t pliant_event_make(const pliant_accelerator_t* accelerator, int32_t device, pliant_event_t** event,
                          pliant_error_t* error);
int32_t pliant_event_free(pliant_event_t* event);
int32_t pliant_event_record(pliant_event_t* event, pliant_stream_t* stream, pliant_error_t* error);
int32_t pliant_stream_wait(pliant_stream_t* stream, pliant_event_t* event, pliant_error_t* error);
int32_t pliant_event_synchronize(pliant_event_t* event, pliant_error_t* error);
int32_t pliant_communicator_make_id(const pliant_accelerator_t* accelerator, int32_t world_size, uint8_t* id,
                                    pliant_error_t* error);
int32_t pliant_communicator_make(const pliant_accelerator_t* accelerator, int32_t device, const uint8_t* id,
                                 int32_t rank, int32_t world_size, pliant_communicator_t** communicator,
                                 pliant_error_t* error);
int32_t pliant_communicator_free(pliant_communicator_t* communicator);
int32_t pliant_communicator_look(const pliant_communicator_t* communicator, int32_t* rank, int32_t* world_size,
                                 pliant_error_t* error);
int32_t pliant_communicator_wait_ready(pliant_communicator_t* communicator, int32_t timeout_ms, pliant_error_t* error);
int32_t pliant_communicator_abort(pliant_communicator_t* communicator, pliant_error_t* error);
int32_t pliant_communicator_shrink(pliant_communicator_t* communicator, const int32_t* without, uint64_t count,
                                   const uint8_t* id, pliant_communicator_t** shrunk, pliant_error_t* error);
int32_t pliant_communicator_make_grow_id(pliant_communicator_t* communicator, int32_t world_size, uint8_t* id,
                                         pliant_error_t* error);
int32_t pliant_communicator_grow(pliant_communicator_t* communicator, const uint8_t* id, int32_t world_size,
                                 pliant_communicator_t** grown, pliant_error_t* error);
int32_t pliant_communicator_join(const pliant_accelerator_t* accelerator, int32_t device, const uint8_t* id,
                                 int32_t rank, int32_t world_size, pliant_communicator_t** communicator,
                                 pliant_error_t* error);
int32_t pliant_communicator_register_window(pliant_communicator_t* communicator, void* memory, uint64_t bytes,
                                            pliant_stream_t* stream, pliant_error_t* error);
int32_t pliant_communicator_all_reduce(pliant_communicator_t* communicator, const void* send, void* receive,
                                       uint64_t count, int32_t dtype, int32_t op, pliant_stream_t* stream,
                                       pliant_error_t* error);
int32_t pliant_communicator_all_gather(pliant_communicator_t* communicator, const void* send, void* receive,
                                       uint64_t count, int32_t dtype, pliant_stream_t* stream, pliant_error_t* error);
int32_t pliant_communicator_all_gather_v(pliant_communicator_t* communicator, const void* send, void* receive,
                                         const uint64_t* counts, uint64_t ranks, int32_t dtype, pliant_stream_t* stream,
                                         pliant_error_t* error);
int32_t pliant_communicator_reduce_scatter(pliant_communicator_t* communicator, const void* send, void* receive,
                                           uint64_t count, int32_t dtype, int32_t op, pliant_stream_t* stream,
                                           pliant_error_t* error);
int32_t pliant_communicator_broadcast(pliant_communicator_t* communicator, void* memory, uint64_t count, int32_t dtype,
                                      int32_t root, pliant_stream_t* stream, pliant_error_t* error);
int32_t pliant_communicator_barrier(pliant_communicator_t* communicator, pliant_stream_t* stream,
                                    pliant_error_t* error);
int32_t pliant_communicator_gather_pieces(pliant_communicator_t* communicator, const void* send, void* receive,
                                          const int32_t* ranks, const uint64_t* parts, uint64_t pieces, int32_t dtype,
                                          pliant_stream_t* stream, pliant_error_t* error);
int32_t pliant_communicator_scatter_pieces(pliant_communicator_t* communicator, const void* send, void* receive,
                                           const int32_t* ranks, const uint64_t* parts, uint64_t pieces,
                                           const uint8_t* adds, uint64_t adders, int32_t dtype, pliant_stream_t* stream,
                                           pliant_error_t* error);
int32_t pliant_communicator_send(pliant_communicator_t* communicator, const void* memory, uint64_t count, int32_t dtype,
                                 int32_t peer, pliant_stream_t* stream, pliant_error_t* error);
int32_t pliant_communicator_receive(pliant_communicator_t* communicator, void* memory, uint64_t count, int32_t dtype,
                                    int32_t peer, pliant_stream_t* stream, pliant_error_t* error);
int32_t pliant_communicator_begin_group(pliant_communicator_t* communicator, pliant_error_t* error);
int32_t pliant_communicator_end_group(pliant_communicator_t* communicator, pliant_error_t* error);
int32_t pliant_sharded_check(const pliant_config_t* config, pliant_error_t* error);
int32_t pliant_sharded_make(pliant_session_t* session, const char* const* states, uint64_t state_count,
                            pliant_sharded_t** model, pliant_error_t* error);
int32_t pliant_sharded_free(pliant_sharded_t* model);
int32_t pliant_sharded_add_parameter(pliant_sharded_t* model, const pliant_sharded_parameter_t* parameter,
                                     uint32_t* number, pliant_error_t* error);
int32_t pliant_sharded_add_module(pliant_sharded_t* model, const pliant_sharded_module_t* module, uint32_t* number,
                                  pliant_error_t* error);
int32_t pliant_sharded_set_parameters(pliant_sharded_t* model, uint32_t number, const pliant_sharded_module_t* module,
                                      pliant_error_t* error);
int32_t pliant_sharded_find(pliant_sharded_t* model, const char* name, uint32_t* number, pliant_error_t* error);
int32_t pliant_sharded_import(pliant_sharded_t* model, const char* file, pliant_error_t* error);
int32_t pliant_session_start_sharded(pliant_session_t* session, const pliant_dataset_t* dataset,
                                     pliant_sharded_t* model, const pliant_state_t* rest, pliant_error_t* error);
int32_t pliant_session_attempt(pliant_session_t* session, int32_t (*work)(void* context), void* context,
                               int32_t* computed, pliant_error_t* error);
int32_t pliant_sharded_begin_pass(pliant_sharded_t* model, const int64_t* micro_batches, uint64_t count,
                                  pliant_error_t* error);
int32_t pliant_sharded_begin_micro_batch(pliant_sharded_t* model, uint64_t number, pliant_error_t* error);
int32_t pliant_sharded_repeat_pass(pliant_sharded_t* model, const int64_t* micro_batches, uint64_t count,
                                   pliant_error_t* error);
int32_t pliant_sharded_can_repeat_pass(pliant_sharded_t* model, uint64_t count, int32_t* can, pliant_error_t* error);
int32_t pliant_sharded_begin_evaluation(pliant_sharded_t* model, pliant_error_t* error);
int32_t pliant_sharded_enter(pliant_sharded_t* model, uint32_t module, int32_t direction, pliant_error_t* error);
int32_t pliant_sharded_leave(pliant_sharded_t* model, uint32_t module, int32_t direction, pliant_error_t* error);
int32_t pliant_sharded_end_pass(pliant_sharded_t* model, pliant_error_t* error);
int32_t pliant_sharded_value(pliant_sharded_t* model, uint32_t parameter, int32_t dtype, const void** value,
                             pliant_error_t* error);
int32_t pliant_sharded_gradient(pliant_sharded_t* model, uint32_t parameter, int32_t dtype, void** gradient,
                                pliant_error_t* error);
int32_t pliant_sharded_prefetch(pliant_sharded_t* model, uint32_t parameter, pliant_error_t* error);
int32_t pliant_sharded_fetch(pliant_sharded_t* model, uint32_t parameter, pliant_error_t* error);
int32_t pliant_sharded_release(pliant_sharded_t* model, uint32_t parameter, pliant_error_t* error);
int32_t pliant_sharded_squared_gradient_norm(pliant_sharded_t* model, double* norm, pliant_error_t* error);
int32_t pliant_sharded_update(pliant_sharded_t* model, int32_t (*each)(void* context, const pliant_shard_t* shard),
                              void* context, pliant_error_t* error);
int32_t pliant_sharded_read(pliant_sharded_t* model, uint32_t parameter, float* to, uint64_t count,
                            pliant_error_t* error);
int32_t pliant_sharded_write(pliant_sharded_t* model, uint32_t parameter, const float* values, uint64_t count,
                             pliant_error_t* error);
int32_t pliant_sharded_export(pliant_sharded_t* model, const char* file, pliant_error_t* error);
int32_t pliant_sharded_look(pliant_sharded_t* model, pliant_sharded_facts_t* facts, pliant_error_t* error);
int32_t pliant_config_refuse_app(const pliant_config_t* config, const char* key, const char* problem,
                                 pliant_error_t* error);
int32_t pliant_config_has(const pliant_config_t* config, const char* section, int32_t* has, pliant_error_t* error);
int32_t pliant_config_use(const pliant_config_t* config, const char* section, const char** name, pliant_error_t* error);
int32_t pliant_config_with(const pliant_config_t* config, const char* const* sets, uint64_t count,
                           pliant_config_t** changed, pliant_error_t* error);
int32_t pliant_config_data(const pliant_config_t* config, pliant_data_options_t* data, pliant_error_t* error);
int32_t pliant_config_lr(const pliant_config_t* config, pliant_lr_options_t* lr, pliant_error_t* error);
int32_t pliant_import_deepspeed(const char* json, uint64_t bytes, const char* name, const char* target,
                                pliant_imported_t** imported, pliant_error_t* error);
int32_t pliant_imported_free(pliant_imported_t* imported);
int32_t pliant_imported_look(const pliant_imported_t* imported, pliant_imported_view_t* view, pliant_error_t* error);
int32_t pliant_plan_make(const pliant_config_t* config, int64_t world_size, pliant_plan_t** plan,
                         pliant_error_t* error);
int32_t pliant_check_scheduler(const pliant_config_t* config, pliant_error_t* error);
int32_t pliant_dataset_read(const char* file, const char* column, pliant_dataset_t** dataset, pliant_error_t* error);
int32_t pliant_analyse_lengths(const char* file, const pliant_length_analysis_t* analysis,
                               pliant_analysed_lengths_t* analysed, pliant_error_t* error);
int32_t pliant_batches_rows(pliant_batches_t* batches, int64_t epoch, int64_t first, int64_t count,
                            pliant_batch_t** batch, pliant_error_t* error);
int32_t pliant_batches_has_step(pliant_batches_t* batches, int64_t step, int32_t* has, pliant_error_t* error);
int32_t pliant_batches_seek(pliant_batches_t* batches, int64_t step, pliant_error_t* error);
int32_t pliant_batches_truncated(pliant_batches_t* batches, int64_t epoch, int64_t* to, uint64_t room, uint64_t* count,
                                 pliant_error_t* error);
int32_t pliant_batches_packing(pliant_batches_t* batches, int64_t epoch, pliant_packing_t* packing,
                               pliant_error_t* error);
int32_t pliant_record_keep_pieces(pliant_record_t* record,
                                  int32_t (*next)(void* context, const void** piece, uint64_t* bytes), void* context,
                                  const char* lr_state, uint64_t lr_bytes, pliant_error_t* error);
int32_t pliant_record_restore_pieces(pliant_record_t* record,
                                     int32_t (*take)(void* context, const void* piece, uint64_t bytes), void* context,
                                     pliant_restored_t* restored, pliant_error_t* error);
int32_t pliant_report_run(const char* directory, pliant_report_t** report, pliant_error_t* error);
int32_t pliant_report_free(pliant_report_t* report);
int32_t pliant_report_look(const pliant_report_t* report, pliant_report_view_t* view, pliant_error_t* error);
int32_t pliant_compare_runs(const char* directory, const char* other, pliant_comparison_t** comparison,
                            pliant_error_t* error);
int32_t pliant_comparison_free(pliant_comparison_t* comparison);
int32_t pliant_comparison_look(const pliant_comparison_t* comparison, pliant_comparison_view_t* view,
                               pliant_error_t* error);
int32_t pliant_adamw(const pliant_adamw_t* update, pliant_error_t* error);
int32_t pliant_stream_adamw(pliant_stream_t* stream, const pliant_adamw_t* update, pliant_error_t* error);
int32_t pliant_squared_norm(const float* values, uint64_t count, const uint64_t* parts, uint64_t part_count,
                            double* norm, pliant_error_t* error);
int32_t pliant_stream_squared_norm(pliant_stream_t* stream, const float* values, uint64_t count, const uint64_t* parts,
                                   uint64_t part_count, double* norm, pliant_error_t* error);
int32_t pliant_squared_norms(double* to, const float* from, uint64_t count, pliant_error_t* error);
int32_t pliant_stream_squared_norms(pliant_stream_t* stream, double* to, const float* from, uint64_t count,
                                    pliant_error_t* error);
int32_t pliant_sum_of_norms(const double* chunks, uint64_t count, double* sum, pliant_error_t* error);
int32_t pliant_export_snapshot(const char* from, const pliant_export_options_t* options, const char* file,
                               pliant_exported_t* exported, pliant_error_t* error);
