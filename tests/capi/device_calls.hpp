// Every function of devices, communicators and sharded models with a handle as its first argument, the others being
// right as far as that is possible without one.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "c_handles.hpp"

namespace pliant::test {

struct Call {
  const char* name;
  std::function<int32_t(void* handle)> call;
};

template <class Handle>
Handle* as(void* handle) {
  return static_cast<Handle*>(handle);
}

class DeviceCalls {
 public:
  std::vector<Call> all() {
    std::vector<Call> calls = of_devices();
    for (auto more : {of_communicators(), of_sharded_models()}) calls.insert(calls.end(), more.begin(), more.end());
    return calls;
  }
  static std::vector<Call> frees() {
    return {
        {"accelerator_free", [](void* h) { return pliant_accelerator_free(as<pliant_accelerator_t>(h)); }},
        {"buffer_free", [](void* h) { return pliant_buffer_free(as<pliant_buffer_t>(h)); }},
        {"stream_free", [](void* h) { return pliant_stream_free(as<pliant_stream_t>(h)); }},
        {"event_free", [](void* h) { return pliant_event_free(as<pliant_event_t>(h)); }},
        {"communicator_free", [](void* h) { return pliant_communicator_free(as<pliant_communicator_t>(h)); }},
        {"sharded_free", [](void* h) { return pliant_sharded_free(as<pliant_sharded_t>(h)); }},
    };
  }

 private:
  using Session = pliant_session_t;
  using Accelerator = pliant_accelerator_t;
  using Stream = pliant_stream_t;
  using Group = pliant_communicator_t;
  using Sharded = pliant_sharded_t;

  std::vector<Call> of_devices() {
    return {
        {"accelerator_make",
         [&](void* h) { return pliant_accelerator_make(as<pliant_config_t>(h), &accelerator_, nullptr); }},
        {"session_accelerator",
         [&](void* h) { return pliant_session_accelerator(as<Session>(h), &accelerator_, nullptr); }},
        {"accelerator_look", [&](void* h) { return pliant_accelerator_look(as<Accelerator>(h), &facts_, nullptr); }},
        {"accelerator_device",
         [&](void* h) { return pliant_accelerator_device(as<Accelerator>(h), 0, &device_, nullptr); }},
        {"buffer_make", [&](void* h) { return pliant_buffer_make(as<Accelerator>(h), 0, 64, 1, &buffer_, nullptr); }},
        {"buffer_look",
         [&](void* h) { return pliant_buffer_look(as<pliant_buffer_t>(h), &memory_, &bytes_, nullptr); }},
        {"stream_make", [&](void* h) { return pliant_stream_make(as<Accelerator>(h), 0, 0, 0, &stream_, nullptr); }},
        {"session_stream", [&](void* h) { return pliant_session_stream(as<Session>(h), &stream_, &rank_, nullptr); }},
        {"stream_synchronize", [&](void* h) { return pliant_stream_synchronize(as<Stream>(h), nullptr); }},
        {"stream_is_idle", [&](void* h) { return pliant_stream_is_idle(as<Stream>(h), &rank_, nullptr); }},
        {"stream_copy",
         [&](void* h) { return pliant_stream_copy(as<Stream>(h), floats_.data(), floats_.data(), 0, nullptr); }},
        {"stream_fill", [&](void* h) { return pliant_stream_fill(as<Stream>(h), floats_.data(), 0, 4, nullptr); }},
        {"stream_reduce",
         [&](void* h) {
           const void* const from = floats_.data();
           return pliant_stream_reduce(as<Stream>(h), floats_.data(), &from, 1, 1, 1, 1, 1, nullptr);
         }},
        {"stream_cast",
         [&](void* h) { return pliant_stream_cast(as<Stream>(h), floats_.data(), 1, floats_.data(), 1, 0, nullptr); }},
        {"stream_adamw", [&](void* h) { return pliant_stream_adamw(as<Stream>(h), &update_, nullptr); }},
        {"stream_squared_norm",
         [&](void* h) { return pliant_stream_squared_norm(as<Stream>(h), data(), 1, nullptr, 0, &norm_, nullptr); }},
        {"stream_squared_norms",
         [&](void* h) { return pliant_stream_squared_norms(as<Stream>(h), &norm_, data(), 1, nullptr); }},
        {"stream_wait", [&](void* h) { return pliant_stream_wait(as<Stream>(h), nullptr, nullptr); }},
        {"event_make", [&](void* h) { return pliant_event_make(as<Accelerator>(h), 0, &event_, nullptr); }},
        {"event_record", [&](void* h) { return pliant_event_record(as<pliant_event_t>(h), nullptr, nullptr); }},
        {"event_synchronize", [&](void* h) { return pliant_event_synchronize(as<pliant_event_t>(h), nullptr); }},
        {"session_commit_on_device",
         [&](void* h) { return pliant_session_commit_on_device(as<Session>(h), &committed_, nullptr); }},
    };
  }
  std::vector<Call> of_communicators() {
    return {
        {"communicator_make_id",
         [&](void* h) { return pliant_communicator_make_id(as<Accelerator>(h), 1, id_.data(), nullptr); }},
        {"communicator_make",
         [&](void* h) { return pliant_communicator_make(as<Accelerator>(h), 0, id_.data(), 0, 1, &group_, nullptr); }},
        {"communicator_join",
         [&](void* h) { return pliant_communicator_join(as<Accelerator>(h), 0, id_.data(), 0, 1, &group_, nullptr); }},
        {"communicator_look", [&](void* h) { return pliant_communicator_look(as<Group>(h), &rank_, &rank_, nullptr); }},
        {"communicator_wait_ready", [&](void* h) { return pliant_communicator_wait_ready(as<Group>(h), 0, nullptr); }},
        {"communicator_abort", [&](void* h) { return pliant_communicator_abort(as<Group>(h), nullptr); }},
        {"communicator_shrink",
         [&](void* h) { return pliant_communicator_shrink(as<Group>(h), &rank_, 1, id_.data(), &group_, nullptr); }},
        {"communicator_make_grow_id",
         [&](void* h) { return pliant_communicator_make_grow_id(as<Group>(h), 2, id_.data(), nullptr); }},
        {"communicator_grow",
         [&](void* h) { return pliant_communicator_grow(as<Group>(h), id_.data(), 2, &group_, nullptr); }},
        {"communicator_register_window",
         [&](void* h) { return pliant_communicator_register_window(as<Group>(h), nullptr, 0, nullptr, nullptr); }},
        {"communicator_all_reduce",
         [&](void* h) {
           return pliant_communicator_all_reduce(as<Group>(h), data(), data(), 1, 1, 1, nullptr, nullptr);
         }},
        {"communicator_all_gather",
         [&](void* h) { return pliant_communicator_all_gather(as<Group>(h), data(), data(), 1, 1, nullptr, nullptr); }},
        {"communicator_all_gather_v",
         [&](void* h) {
           return pliant_communicator_all_gather_v(as<Group>(h), data(), data(), &bytes_, 1, 1, nullptr, nullptr);
         }},
        {"communicator_reduce_scatter",
         [&](void* h) {
           return pliant_communicator_reduce_scatter(as<Group>(h), data(), data(), 1, 1, 1, nullptr, nullptr);
         }},
        {"communicator_broadcast",
         [&](void* h) { return pliant_communicator_broadcast(as<Group>(h), data(), 1, 1, 0, nullptr, nullptr); }},
        {"communicator_barrier", [&](void* h) { return pliant_communicator_barrier(as<Group>(h), nullptr, nullptr); }},
        {"communicator_gather_pieces",
         [&](void* h) {
           return pliant_communicator_gather_pieces(as<Group>(h), data(), data(), &rank_, &bytes_, 0, 1, nullptr,
                                                    nullptr);
         }},
        {"communicator_scatter_pieces",
         [&](void* h) {
           return pliant_communicator_scatter_pieces(as<Group>(h), data(), data(), &rank_, &bytes_, 0, id_.data(), 1, 1,
                                                     nullptr, nullptr);
         }},
        {"communicator_send",
         [&](void* h) { return pliant_communicator_send(as<Group>(h), data(), 1, 1, 0, nullptr, nullptr); }},
        {"communicator_receive",
         [&](void* h) { return pliant_communicator_receive(as<Group>(h), data(), 1, 1, 0, nullptr, nullptr); }},
        {"communicator_begin_group", [&](void* h) { return pliant_communicator_begin_group(as<Group>(h), nullptr); }},
        {"communicator_end_group", [&](void* h) { return pliant_communicator_end_group(as<Group>(h), nullptr); }},
    };
  }
  std::vector<Call> of_sharded_models() {
    return {
        {"sharded_check", [&](void* h) { return pliant_sharded_check(as<pliant_config_t>(h), nullptr); }},
        {"sharded_make", [&](void* h) { return pliant_sharded_make(as<Session>(h), nullptr, 0, &sharded_, nullptr); }},
        {"session_start_sharded",
         [&](void* h) { return pliant_session_start_sharded(as<Session>(h), nullptr, nullptr, nullptr, nullptr); }},
        {"session_attempt",
         [&](void* h) {
           return pliant_session_attempt(
               as<Session>(h), [](void*) { return int32_t{0}; }, nullptr, &rank_, nullptr);
         }},
        {"sharded_add_parameter",
         [&](void* h) { return pliant_sharded_add_parameter(as<Sharded>(h), &parameter_, &number_, nullptr); }},
        {"sharded_add_module",
         [&](void* h) { return pliant_sharded_add_module(as<Sharded>(h), &module_, &number_, nullptr); }},
        {"sharded_set_parameters",
         [&](void* h) { return pliant_sharded_set_parameters(as<Sharded>(h), 0, &module_, nullptr); }},
        {"sharded_find", [&](void* h) { return pliant_sharded_find(as<Sharded>(h), "a", &number_, nullptr); }},
        {"sharded_import", [&](void* h) { return pliant_sharded_import(as<Sharded>(h), "/nowhere", nullptr); }},
        {"sharded_begin_pass", [&](void* h) { return pliant_sharded_begin_pass(as<Sharded>(h), rows(), 1, nullptr); }},
        {"sharded_begin_micro_batch",
         [&](void* h) { return pliant_sharded_begin_micro_batch(as<Sharded>(h), 0, nullptr); }},
        {"sharded_repeat_pass",
         [&](void* h) { return pliant_sharded_repeat_pass(as<Sharded>(h), rows(), 1, nullptr); }},
        {"sharded_can_repeat_pass",
         [&](void* h) { return pliant_sharded_can_repeat_pass(as<Sharded>(h), 1, &rank_, nullptr); }},
        {"sharded_begin_evaluation", [&](void* h) { return pliant_sharded_begin_evaluation(as<Sharded>(h), nullptr); }},
        {"sharded_enter", [&](void* h) { return pliant_sharded_enter(as<Sharded>(h), 0, 0, nullptr); }},
        {"sharded_leave", [&](void* h) { return pliant_sharded_leave(as<Sharded>(h), 0, 0, nullptr); }},
        {"sharded_end_pass", [&](void* h) { return pliant_sharded_end_pass(as<Sharded>(h), nullptr); }},
        {"sharded_value", [&](void* h) { return pliant_sharded_value(as<Sharded>(h), 0, 0, &value_, nullptr); }},
        {"sharded_gradient", [&](void* h) { return pliant_sharded_gradient(as<Sharded>(h), 0, 0, &memory_, nullptr); }},
        {"sharded_prefetch", [&](void* h) { return pliant_sharded_prefetch(as<Sharded>(h), 0, nullptr); }},
        {"sharded_fetch", [&](void* h) { return pliant_sharded_fetch(as<Sharded>(h), 0, nullptr); }},
        {"sharded_release", [&](void* h) { return pliant_sharded_release(as<Sharded>(h), 0, nullptr); }},
        {"sharded_squared_gradient_norm",
         [&](void* h) { return pliant_sharded_squared_gradient_norm(as<Sharded>(h), &norm_, nullptr); }},
        {"sharded_update",
         [&](void* h) {
           return pliant_sharded_update(
               as<Sharded>(h), [](void*, const pliant_shard_t*) { return int32_t{0}; }, nullptr, nullptr);
         }},
        {"sharded_read", [&](void* h) { return pliant_sharded_read(as<Sharded>(h), 0, floats_.data(), 1, nullptr); }},
        {"sharded_write", [&](void* h) { return pliant_sharded_write(as<Sharded>(h), 0, floats_.data(), 1, nullptr); }},
        {"sharded_export", [&](void* h) { return pliant_sharded_export(as<Sharded>(h), "/nowhere/x", nullptr); }},
        {"sharded_look", [&](void* h) { return pliant_sharded_look(as<Sharded>(h), &sharded_facts_, nullptr); }},
    };
  }
  float* data() { return floats_.data(); }
  const int64_t* rows() { return rows_.data(); }

  std::array<uint8_t, PLIANT_COMMUNICATOR_ID_BYTES> id_{};
  std::array<float, 4> floats_{};
  std::array<int64_t, 2> rows_{0, 1};
  int32_t rank_ = 0;
  uint32_t number_ = 0;
  uint64_t bytes_ = 0;
  double norm_ = 0;
  void* memory_ = nullptr;
  const void* value_ = nullptr;
  Accelerator* accelerator_ = nullptr;
  pliant_buffer_t* buffer_ = nullptr;
  Stream* stream_ = nullptr;
  pliant_event_t* event_ = nullptr;
  Group* group_ = nullptr;
  Sharded* sharded_ = nullptr;
  pliant_accelerator_facts_t facts_ = PLIANT_INIT(pliant_accelerator_facts_t);
  pliant_adamw_t update_ = PLIANT_INIT(pliant_adamw_t);
  pliant_device_t device_ = PLIANT_INIT(pliant_device_t);
  pliant_committed_t committed_ = PLIANT_INIT(pliant_committed_t);
  pliant_sharded_parameter_t parameter_ = PLIANT_INIT(pliant_sharded_parameter_t);
  pliant_sharded_module_t module_ = PLIANT_INIT(pliant_sharded_module_t);
  pliant_sharded_facts_t sharded_facts_ = PLIANT_INIT(pliant_sharded_facts_t);
};

}  // namespace pliant::test
