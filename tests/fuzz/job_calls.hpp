// Calls of pliant_session_* and pliant_sharded_* with arguments that are right, nearly right or none. Within a job they
// are played by job_fuzz_worker.cpp; outside of one there is no session, and each is refused.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fuzz/capi_player.hpp"

namespace pliant::test {

using Calls = std::map<std::string, std::function<int32_t(Player&)>>;

#define PLIANT_CALL(function, ...)                                         \
  {                                                                        \
#function, [](Player & p) { return function(__VA_ARGS__, p.error()); } \
  }

/// What calls of a job have brought about, and memory that is lent to the session.
struct JobInPlay {
  static constexpr size_t kElements = 64;

  bool is_started = false;
  bool is_sharded = false;  ///< it was started with a model
  bool is_in_callback = false;
  bool is_done = false;
  int depth = 0;               ///< of attempts
  bool is_digested = true;     ///< each state is saved for its digest, and one that cannot be is the last of a session
  bool is_torn = false;        ///< an update was not completed: the process is to end
  int failures_left = 2;       ///< that callbacks may still end with: a rank that fails again and again is replaced
  uint64_t gradient_size = 0;  ///< that the session was started with
  std::vector<int64_t> micro_batches;  ///< of the step in hand
  std::array<std::array<double, kElements>, 4> memory{};
  std::array<float, kElements> floats{};
  std::string file;  ///< that export writes and import reads
};
inline JobInPlay& job_in_play() {
  static JobInPlay one;
  return one;
}

inline const Calls& job_calls();

namespace job_detail {

template <class Value, size_t kCount>
Value one_of(Player& p, const std::array<Value, kCount>& values) {
  return values[p.below(kCount)];
}

/// Points to two sizes of a shape.
inline const int64_t* some_shape(Player& p) {
  static const std::array<int64_t, 10> kSizes{4, 2, 8, 1, 0, 3, -1, 8, INT64_MAX, 2};
  return p.once_in(9) ? nullptr : &kSizes[p.below(p.once_in(6) ? kSizes.size() - 1 : 5)];
}

inline const char* some_name(Player& p) {
  return one_of<const char*, 7>(p, {"w0", "w1", "root", "momentum", "", "a b", nullptr});
}

/// What a callback of the program ends with: mostly PLIANT_OK, else a status or a number that is none.
inline int32_t some_end(Player& p) {
  JobInPlay& job = job_in_play();
  if (!p.once_in(6) || job.failures_left == 0) return PLIANT_OK;
  --job.failures_left;
  return static_cast<int32_t>(p.once_in(4) ? p.number() : static_cast<int64_t>(p.below(14)));
}

/// `player` is NULL where the struct that has it was too short for it.
inline int32_t save_little(void* player, void* to, uint64_t room, uint64_t* bytes) {
  constexpr uint64_t kBytes = 16;
  *bytes = kBytes;
  if (to != nullptr && room >= kBytes) std::memset(to, 7, kBytes);
  if (player == nullptr || job_in_play().is_digested) return PLIANT_OK;
  Player& p = *static_cast<Player*>(player);
  const int32_t end = some_end(p);
  if (end == PLIANT_OK || p.once_in(2)) return end;
  *bytes = to == nullptr ? UINT64_MAX - p.below(3) : p.below(kBytes);  // in place of a status
  return PLIANT_OK;
}
inline int32_t load_nothing(void*, const void*, uint64_t) {
  return PLIANT_OK;
}

inline int32_t start(Player& p) {
  JobInPlay& job = job_in_play();
  static std::array<pliant_state_array_t, 3> arrays;
  static constexpr std::array<char, 1024> kReadOnly{};
  for (size_t i = 0; i < arrays.size(); ++i) {
    arrays[i] = PLIANT_INIT(pliant_state_array_t);
    if (p.once_in(16)) arrays[i].struct_size -= 8;
    arrays[i].dtype = p.once_in(3) ? p.dtype() : PLIANT_DTYPE_F32;
    arrays[i].name = p.once_in(3) ? some_name(p) : one_of<const char*, 3>(p, {"a", "b", "c"});
    arrays[i].memory = job.memory[i].data();
    if (p.once_in(12)) arrays[i].memory = nullptr;
    if (p.once_in(12)) arrays[i].memory = const_cast<char*>(kReadOnly.data());
    arrays[i].shape = some_shape(p);
    arrays[i].dimensions = p.below(3);
  }
  auto* const state = p.room<pliant_state_t>();
  if (state != nullptr) {
    state->gradient_size = p.count();
    state->array_count = p.below(arrays.size() + 1);
    state->arrays = p.once_in(16) ? nullptr : arrays.data();
    if (p.once_in(2)) state->save = save_little;
    if (p.once_in(8) ? p.once_in(2) : state->save != nullptr) state->load = load_nothing;
    state->context = &p;
  }
  const uint64_t gradient = state != nullptr ? state->gradient_size : 0;
  const int32_t status =
      pliant_session_start(p.handle<pliant_session_t>(), p.handle<pliant_dataset_t>(), state, p.error());
  if (status != PLIANT_OK) return status;
  job.is_started = true;
  job.gradient_size = gradient;
  return status;
}

inline int32_t start_sharded(Player& p) {
  // Of a model that was made by chance nobody knows how to pass through it: it is not started.
  const bool is_trainable = job_in_play().is_started;
  auto* const rest = is_trainable && p.once_in(2) ? nullptr : p.room<pliant_state_t>();
  if (rest != nullptr) rest->gradient_size = 1 + p.count();
  const bool is_refused = is_trainable || rest != nullptr;
  return pliant_session_start_sharded(is_refused ? p.handle<pliant_session_t>() : nullptr, p.handle<pliant_dataset_t>(),
                                      p.handle<pliant_sharded_t>(), rest, p.error());
}

/// Ends a pass that calls by chance have begun, where there is one.
inline void end_pass(pliant_sharded_t* model) {
  for (int left = 0; left < 3; ++left) {
    for (const uint32_t module : {1U, 0U}) {
      for (const int32_t direction : {PLIANT_DIRECTION_BACKWARD, PLIANT_DIRECTION_RECOMPUTE, PLIANT_DIRECTION_FORWARD})
        pliant_sharded_leave(model, module, direction, nullptr);
    }
  }
  pliant_sharded_end_pass(model, nullptr);
}

inline int32_t next(Player& p) {
  JobInPlay& job = job_in_play();
  // Within a pass it has the group form anew, and a rank that does so again and again ends the job.
  if (job.failures_left > 0 && p.once_in(4)) {
    --job.failures_left;
  } else {
    for (pliant_sharded_t* const model : p.pool<pliant_sharded_t>()) end_pass(model);
  }
  auto* const step = p.room<pliant_step_t>();
  const int32_t status = pliant_session_next(p.handle<pliant_session_t>(), step, p.error());
  if (status != PLIANT_OK) return status;
  job.micro_batches.clear();
  if (step->struct_size < sizeof(*step) || step->struct_size > sizeof(*step)) return status;
  job.is_done = step->batch == nullptr;
  if (!job.is_done) job.micro_batches.assign(step->micro_batches, step->micro_batches + 2 * step->micro_batch_count);
  return status;
}

inline int32_t add(Player& p) {
  const JobInPlay& job = job_in_play();
  const bool in_pieces = p.once_in(3);
  const uint64_t size = p.once_in(6) ? p.count() : job.gradient_size;
  return pliant_session_add(p.handle<pliant_session_t>(), p.below(job.micro_batches.size() / 2 + 2), p.real(),
                            in_pieces ? nullptr : job.floats.data(), in_pieces && !p.once_in(6) ? 0 : size, p.error());
}

inline int32_t add_piece(Player& p) {
  const JobInPlay& job = job_in_play();
  const uint64_t offset = p.once_in(2) ? 0 : p.count();
  const uint64_t count = p.once_in(2) ? p.count() : job.gradient_size - std::min(offset, job.gradient_size);
  return pliant_session_add_piece(p.handle<pliant_session_t>(), p.below(job.micro_batches.size() / 2 + 2), offset,
                                  count, p.once_in(12) ? nullptr : job.memory[3].data(), p.dtype(), p.error());
}

inline int32_t session_stream(Player& p) {
  pliant_stream_t* lent = nullptr;  // the session's, which frees it
  const int32_t status = pliant_session_stream(p.handle<pliant_session_t>(), p.once_in(9) ? nullptr : &lent,
                                               p.value<int32_t>(), p.error());
  if (status == PLIANT_OK) CHECK(pliant_stream_free(lent) == PLIANT_FAILED_PRECONDITION);
  return status;
}

/// The session itself is freed last, and not in a callback, where that is refused.
inline int32_t session_free(Player& p) {
  if (job_in_play().is_in_callback) return pliant_session_free(p.handle<pliant_session_t>());
  return pliant_session_free(p.once_in(2) ? nullptr : reinterpret_cast<pliant_session_t*>(job_in_play().floats.data()));
}

/// One that was started is there to the end: without it no step is updated.
inline int32_t sharded_free(Player& p) {
  return job_in_play().is_started ? pliant_sharded_free(nullptr) : p.free(&pliant_sharded_free);
}

inline int32_t sharded_make(Player& p) {
  static const std::array<std::array<const char*, 2>, 4> kNames{
      {{"momentum", "variance"}, {"momentum", nullptr}, {"a b", ""}, {"momentum", "momentum"}}};
  const auto& names = kNames[p.once_in(3) ? p.below(kNames.size()) : 0];
  return pliant_sharded_make(p.handle<pliant_session_t>(), names.data(), p.below(3), p.place<pliant_sharded_t>(),
                             p.error());
}

inline int32_t first_values(void* player, float* values, uint64_t count) {
  std::fill(values, values + count, 0.5F);
  return player == nullptr ? int32_t{PLIANT_OK} : some_end(*static_cast<Player*>(player));
}

inline int32_t add_parameter(Player& p) {
  static const std::array<int64_t, 5> kSizes{4, 8, 1, 0, -1};
  auto* const parameter = p.room<pliant_sharded_parameter_t>();
  if (parameter != nullptr) {
    parameter->flags = p.once_in(3) ? static_cast<uint32_t>(p.below(16)) : 0;
    parameter->name = some_name(p);
    parameter->dimensions = p.below(2);
    parameter->shape = p.once_in(9) ? nullptr : &kSizes[p.below(kSizes.size())];
    parameter->initialise = p.once_in(9) ? nullptr : first_values;
    parameter->context = &p;
  }
  return pliant_sharded_add_parameter(p.handle<pliant_sharded_t>(), parameter, p.value<uint32_t>(), p.error());
}

inline pliant_sharded_module_t* some_module(Player& p) {
  static std::array<uint32_t, 2> own;
  static std::array<uint32_t, 2> external;
  static uint32_t parent = 0;
  for (uint32_t& number : own) number = static_cast<uint32_t>(p.below(4));
  for (uint32_t& number : external) number = static_cast<uint32_t>(p.below(4));
  parent = static_cast<uint32_t>(p.below(3));
  auto* const module = p.room<pliant_sharded_module_t>();
  if (module == nullptr) return module;
  module->is_leaf = p.once_in(4) ? static_cast<uint32_t>(p.below(3)) : 0;
  module->name = some_name(p);
  module->parent = p.once_in(2) ? nullptr : &parent;
  module->own = own.data();
  module->own_count = p.below(own.size() + 1);
  module->external = p.once_in(9) ? nullptr : external.data();
  module->external_count = p.once_in(3) ? p.below(external.size() + 1) : 0;
  return module;
}

inline const char* some_file(Player& p) {
  const JobInPlay& job = job_in_play();
  return p.once_in(4) || job.file.empty() ? p.text() : job.file.c_str();
}

/// Micro-batches of the step in hand, or any.
inline int32_t with_micro_batches(Player& p,
                                  int32_t (*call)(pliant_sharded_t*, const int64_t*, uint64_t, pliant_error_t*)) {
  const JobInPlay& job = job_in_play();
  if (job.micro_batches.empty() || p.once_in(4))
    return call(p.handle<pliant_sharded_t>(), p.integers(), p.below(4), p.error());
  const uint64_t first = p.below(job.micro_batches.size() / 2);
  const uint64_t count = p.below(job.micro_batches.size() / 2 - first + 1);
  return call(p.handle<pliant_sharded_t>(), job.micro_batches.data() + 2 * first, count, p.error());
}

inline uint32_t number(Player& p) {
  return static_cast<uint32_t>(p.once_in(9) ? p.below(99) : p.below(3));
}

/// On stderr where PLIANT_FUZZ_SAY is set, for who looks for the call that a seed stumbles over.
inline void say(int depth, const std::string& call) {
  static const bool is_asked = std::getenv("PLIANT_FUZZ_SAY") != nullptr;
  if (is_asked) std::fprintf(stderr, "%*s%s\n", 2 * depth, "", call.c_str());
}

inline int32_t any_call(Player& p) {
  auto at = job_calls().begin();
  std::advance(at, static_cast<long>(p.below(job_calls().size())));
  INFO("in a callback: " << at->first);
  say(job_in_play().depth, at->first);
  const int32_t status = at->second(p);
  CHECK(status >= PLIANT_OK);
  CHECK(status <= PLIANT_DEADLINE_EXCEEDED);
  return status;
}

/// A callback of the program: some calls, and PLIANT_OK or another status in the end.
inline int32_t some_calls(void* context) {
  Player& p = *static_cast<Player*>(context);
  JobInPlay& job = job_in_play();
  const bool before = job.is_in_callback;
  job.is_in_callback = true;
  ++job.depth;
  for (uint64_t i = job.depth > 2 ? 0 : p.below(12); i > 0; --i) any_call(p);
  --job.depth;
  job.is_in_callback = before;
  return some_end(p);
}

inline int32_t attempt(Player& p) {
  return pliant_session_attempt(p.handle<pliant_session_t>(), p.once_in(16) ? nullptr : some_calls, &p,
                                p.value<int32_t>(), p.error());
}

/// Ends wrongly once in a job, whose worker is replaced then: it makes the file that says so.
inline int32_t update_shard(void* player, const pliant_shard_t* shard) {
  JobInPlay& job = job_in_play();
  for (uint64_t i = 0; i < shard->count; ++i) shard->weights[i] -= 0.01F * shard->gradient[i];
  Player& p = *static_cast<Player*>(player);
  if (!p.once_in(40) || p.is_careful()) return PLIANT_OK;
  std::FILE* const made = std::fopen((job.file + ".torn").c_str(), "wx");
  if (made == nullptr) return PLIANT_OK;
  std::fclose(made);
  job.is_torn = true;
  return 1 + static_cast<int32_t>(p.below(14));
}

inline int32_t update(Player& p) {
  return pliant_sharded_update(p.handle<pliant_sharded_t>(), p.once_in(16) ? nullptr : update_shard, &p, p.error());
}

inline int32_t before_snapshot(void* player, int64_t) {
  return some_end(*static_cast<Player*>(player));
}
inline void after_snapshot(void*, int64_t, const char* file, const char* why) {
  CHECK(std::strlen(file) > 0);
  CHECK(std::strlen(why) < 4096);
}
inline int32_t on_snapshot(Player& p) {
  return pliant_session_on_snapshot(p.handle<pliant_session_t>(), p.once_in(3) ? nullptr : before_snapshot,
                                    p.once_in(3) ? nullptr : after_snapshot, &p, p.error());
}

/// Seldom, for the job is over then; and its last snapshot has to be written.
inline int32_t end_after_step(Player& p) {
  const int32_t status =
      pliant_session_end_after_step(p.handle<pliant_session_t>(), p.once_in(16) ? p.text() : nullptr, p.error());
  if (status == PLIANT_OK) job_in_play().failures_left = 0;
  return status;
}

/// Room for a parameter of four elements, or of as many as any has.
inline uint64_t some_elements(Player& p) {
  return p.once_in(3) ? p.count() : uint64_t{4} << p.below(2);
}

/// A name that a metric may have, or any text.
inline const char* some_metric(Player& p) {
  return p.once_in(4) ? p.text() : "perplexity";
}

/// The group that [lr.groups] of the job has, or another.
inline const char* some_group(Player& p) {
  return p.once_in(4) ? p.text() : "head";
}

/// A kind of metric, and seldom none.
inline int32_t some_kind(Player& p) {
  return static_cast<int32_t>(p.below(p.once_in(8) ? 7 : 5));
}

}  // namespace job_detail

/// By name.
inline const Calls& job_calls() {
  using namespace job_detail;
  static const Calls all{
      {"pliant_session_attach",
       [](Player& p) {
         pliant_session_t* second = nullptr;  // the process has joined, or there is no job
         return pliant_session_attach(p.once_in(9) ? nullptr : &second, p.error());
       }},
      {"pliant_session_attach_at",
       [](Player& p) {
         pliant_session_t* second = nullptr;  // nobody listens there
         const char* const address = p.text();
         return pliant_session_attach_at(p.once_in(9) ? nullptr : &second, address, p.small(), p.small(), p.error());
       }},
      {"pliant_session_free", &session_free},
      PLIANT_CALL(pliant_session_config, p.handle<pliant_session_t>(), p.place<pliant_config_t>()),
      {"pliant_session_start", &start},
      {"pliant_session_next", &next},
      PLIANT_CALL(pliant_session_begin_busy, p.handle<pliant_session_t>(), p.text(), p.real()),
      PLIANT_CALL(pliant_session_end_busy, p.handle<pliant_session_t>()),
      {"pliant_session_on_snapshot", &on_snapshot},
      PLIANT_CALL(pliant_session_coming, p.handle<pliant_session_t>(), p.small(), p.room<pliant_step_t>()),
      PLIANT_CALL(pliant_session_scaling, p.handle<pliant_session_t>(), p.room<pliant_scaling_t>()),
      PLIANT_CALL(pliant_session_scaling_of, p.handle<pliant_session_t>(), p.once_in(2) ? 0.01 : p.real(),
                  p.room<pliant_scaling_t>()),
      PLIANT_CALL(pliant_session_scaling_of_group, p.handle<pliant_session_t>(), some_group(p),
                  p.room<pliant_scaling_t>()),
      PLIANT_CALL(pliant_session_metric, p.handle<pliant_session_t>(), some_metric(p), p.real(),
                  static_cast<double>(p.below(3)), some_kind(p)),
      PLIANT_CALL(pliant_session_evaluated, p.handle<pliant_session_t>(), some_metric(p), p.real(),
                  static_cast<double>(p.below(3)), some_kind(p)),
      PLIANT_CALL(pliant_session_last_evaluation, p.handle<pliant_session_t>(), some_metric(p), p.value<double>(),
                  p.value<int64_t>()),
      {"pliant_session_end_after_step", &end_after_step},
      {"pliant_session_add", &add},
      {"pliant_session_add_piece", &add_piece},
      PLIANT_CALL(pliant_session_commit, p.handle<pliant_session_t>(), p.room<pliant_committed_t>()),
      PLIANT_CALL(pliant_session_commit_on_device, p.handle<pliant_session_t>(), p.room<pliant_committed_t>()),
      PLIANT_CALL(pliant_session_accelerator, p.handle<pliant_session_t>(), p.place<pliant_accelerator_t>()),
      {"pliant_session_stream", &session_stream},
      {"pliant_session_start_sharded", &start_sharded},
      {"pliant_session_attempt", &attempt},
      PLIANT_CALL(pliant_sharded_check, p.handle<pliant_config_t>()),
      {"pliant_sharded_make", &sharded_make},
      {"pliant_sharded_free", &sharded_free},
      {"pliant_sharded_add_parameter", &add_parameter},
      PLIANT_CALL(pliant_sharded_add_module, p.handle<pliant_sharded_t>(), some_module(p), p.value<uint32_t>()),
      PLIANT_CALL(pliant_sharded_set_parameters, p.handle<pliant_sharded_t>(), number(p), some_module(p)),
      PLIANT_CALL(pliant_sharded_find, p.handle<pliant_sharded_t>(), some_name(p), p.value<uint32_t>()),
      PLIANT_CALL(pliant_sharded_import, p.handle<pliant_sharded_t>(), some_file(p)),
      {"pliant_sharded_begin_pass", [](Player& p) { return with_micro_batches(p, &pliant_sharded_begin_pass); }},
      PLIANT_CALL(pliant_sharded_begin_micro_batch, p.handle<pliant_sharded_t>(), p.below(3)),
      {"pliant_sharded_repeat_pass", [](Player& p) { return with_micro_batches(p, &pliant_sharded_repeat_pass); }},
      PLIANT_CALL(pliant_sharded_can_repeat_pass, p.handle<pliant_sharded_t>(), p.below(3), p.value<int32_t>()),
      PLIANT_CALL(pliant_sharded_begin_evaluation, p.handle<pliant_sharded_t>()),
      PLIANT_CALL(pliant_sharded_enter, p.handle<pliant_sharded_t>(), number(p), p.op()),
      PLIANT_CALL(pliant_sharded_leave, p.handle<pliant_sharded_t>(), number(p), p.op()),
      PLIANT_CALL(pliant_sharded_end_pass, p.handle<pliant_sharded_t>()),
      PLIANT_CALL(pliant_sharded_value, p.handle<pliant_sharded_t>(), number(p), p.once_in(2) ? 0 : p.dtype(),
                  p.value<const void*>()),
      PLIANT_CALL(pliant_sharded_gradient, p.handle<pliant_sharded_t>(), number(p), p.once_in(2) ? 0 : p.dtype(),
                  p.value<void*>()),
      PLIANT_CALL(pliant_sharded_prefetch, p.handle<pliant_sharded_t>(), number(p)),
      PLIANT_CALL(pliant_sharded_fetch, p.handle<pliant_sharded_t>(), number(p)),
      PLIANT_CALL(pliant_sharded_release, p.handle<pliant_sharded_t>(), number(p)),
      PLIANT_CALL(pliant_sharded_squared_gradient_norm, p.handle<pliant_sharded_t>(), p.value<double>()),
      {"pliant_sharded_update", &update},
      PLIANT_CALL(pliant_sharded_read, p.handle<pliant_sharded_t>(), number(p),
                  p.once_in(9) ? nullptr : job_in_play().floats.data(), some_elements(p)),
      PLIANT_CALL(pliant_sharded_write, p.handle<pliant_sharded_t>(), number(p),
                  p.once_in(9) ? nullptr : job_in_play().floats.data(), some_elements(p)),
      PLIANT_CALL(pliant_sharded_export, p.handle<pliant_sharded_t>(), some_file(p)),
      PLIANT_CALL(pliant_sharded_look, p.handle<pliant_sharded_t>(), p.room<pliant_sharded_facts_t>()),
  };
  return all;
}

}  // namespace pliant::test
