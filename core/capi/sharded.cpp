// Sharded models for C.
#include "pliant/sharded.hpp"

#include <fmt/format.h>

#include "session_handle.hpp"
#include "structs.hpp"

namespace {

using pliant::capi::given_array, pliant::capi::require, pliant::capi::ShardedTurn;

constexpr uint32_t kParameterFlags = PLIANT_SHARDED_FROZEN | PLIANT_SHARDED_PERSISTENT | PLIANT_SHARDED_EXTERNAL;

pliant::ParameterId parameter_of(uint32_t number) {
  return pliant::ParameterId{number};
}

pliant::Direction direction_of(int32_t number) {
  if (number >= PLIANT_DIRECTION_FORWARD && number <= PLIANT_DIRECTION_RECOMPUTE)
    return static_cast<pliant::Direction>(number);
  throw pliant::capi::wrong("direction " + std::to_string(number) + " is none of PLIANT_DIRECTION_...");
}

std::vector<pliant::RowRange> ranges_of(const int64_t* micro_batches, uint64_t count) {
  static_cast<void>(given_array(micro_batches, count, "micro_batches"));
  std::vector<pliant::RowRange> made;
  for (uint64_t i = 0; i < count; ++i) made.push_back({micro_batches[2 * i], micro_batches[2 * i + 1]});
  return made;
}

std::vector<pliant::ParameterId> parameters_of(const uint32_t* numbers, uint64_t count, const char* name) {
  std::vector<pliant::ParameterId> made;
  for (const uint32_t number : given_array(numbers, count, name)) made.push_back(parameter_of(number));
  return made;
}

pliant::ParameterSpec spec_of(const pliant_sharded_parameter_t* parameter) {
  const pliant_sharded_parameter_t known = pliant::capi::read(parameter, "parameter");
  pliant::capi::check_flags(known.flags, kParameterFlags, "parameter");
  require(known.name, "parameter.name");
  const auto shape = given_array(known.shape, known.dimensions, "parameter.shape");
  pliant::ParameterSpec made;
  made.name = known.name;
  made.shape.assign(shape.begin(), shape.end());
  made.frozen = (known.flags & PLIANT_SHARDED_FROZEN) != 0;
  made.persistent = (known.flags & PLIANT_SHARDED_PERSISTENT) != 0;
  made.external = (known.flags & PLIANT_SHARDED_EXTERNAL) != 0;
  if (known.initialise == nullptr) return made;
  made.initialise = [known](std::span<float> values) {
    pliant::capi::call_back("initialise of a parameter",
                            [&] { return known.initialise(known.context, values.data(), values.size()); });
  };
  return made;
}

pliant::ModuleSpec spec_of(const pliant_sharded_module_t* module) {
  const pliant_sharded_module_t known = pliant::capi::read(module, "module");
  if (known.is_leaf > 1) throw pliant::capi::wrong("module.is_leaf is neither 0 nor 1");
  require(known.name, "module.name");
  pliant::ModuleSpec made;
  made.name = known.name;
  if (known.parent != nullptr) made.parent = pliant::ModuleId{*known.parent};
  made.own = parameters_of(known.own, known.own_count, "module.own");
  made.external = parameters_of(known.external, known.external_count, "module.external");
  made.leaf = known.is_leaf != 0;
  return made;
}

/// Refuses a type of what is whole that the program does not expect.
void check_dtype(int32_t expected, pliant::DType there, const char* option) {
  if (expected == 0 || pliant::capi::dtype_of(expected) == there) return;
  const char* const name = there == pliant::DType::kF32 ? "f32" : "bf16";
  const char* const other = there == pliant::DType::kF32 ? "bf16" : "f32";
  const bool is_possible = expected == PLIANT_DTYPE_F32 || expected == PLIANT_DTYPE_BF16;
  throw pliant::Error(pliant::Status::kFailedPrecondition,
                      is_possible ? fmt::format("[coordinator] {0} = \"{1}\", but this program expects {2}; set {0} = "
                                                "\"{2}\"",
                                                option, name, other)
                                  : fmt::format("[coordinator] {} is f32 or bf16, and nothing else", option),
                      pliant::Origin::kInput);
}

}  // namespace

int32_t pliant_sharded_check(const pliant_config_t* config, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] { pliant::ShardedModel::check(pliant::capi::given(config).config); });
}

int32_t pliant_sharded_make(pliant_session_t* session, const char* const* states, uint64_t state_count,
                            pliant_sharded_t** model, pliant_error_t* error) {
  return pliant::capi::hand_out(model, error, [&] {
    pliant_session_t& known = pliant::capi::makers(session);
    std::vector<std::string> names;
    for (const char* const name : given_array(states, state_count, "states")) {
      require(name, "a name of states");
      names.emplace_back(name);
    }
    auto core = std::make_shared<pliant::capi::ShardedCore>();
    core->model.emplace(known.session, std::move(names));
    auto made = std::make_unique<pliant_sharded_t>(core);
    known.sharded = std::move(core);
    return made;
  });
}

int32_t pliant_sharded_free(pliant_sharded_t* model) {
  return pliant::capi::answer(nullptr, [&] {
    if (model == nullptr) return;
    pliant_sharded_t& gone = pliant::capi::makers(model);
    pliant::capi::require_idle(*gone.core, gone.kName);
    if (!gone.core->is_started) gone.core->model.reset();
    delete model;
  });
}

int32_t pliant_sharded_add_parameter(pliant_sharded_t* model, const pliant_sharded_parameter_t* parameter,
                                     uint32_t* number, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    require(number, "number");
    *number = static_cast<uint32_t>(known->add(spec_of(parameter)));
  });
}

int32_t pliant_sharded_add_module(pliant_sharded_t* model, const pliant_sharded_module_t* module, uint32_t* number,
                                  pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    require(number, "number");
    *number = static_cast<uint32_t>(known->add(spec_of(module)));
  });
}

int32_t pliant_sharded_set_parameters(pliant_sharded_t* model, uint32_t number, const pliant_sharded_module_t* module,
                                      pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    const pliant_sharded_module_t changed = pliant::capi::read(module, "module");
    known->set_parameters(pliant::ModuleId{number}, parameters_of(changed.own, changed.own_count, "module.own"),
                          parameters_of(changed.external, changed.external_count, "module.external"));
  });
}

int32_t pliant_sharded_find(pliant_sharded_t* model, const char* name, uint32_t* number, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    require(name, "name");
    require(number, "number");
    const std::optional<pliant::ParameterId> found = known->find(name);
    if (!found) {
      throw pliant::Error(pliant::Status::kNotFound,
                          std::string("the sharded model has no parameter of the name '") + name + "'");
    }
    *number = static_cast<uint32_t>(*found);
  });
}

int32_t pliant_sharded_import(pliant_sharded_t* model, const char* file, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    require(file, "file");
    known->import_safetensors(file);
  });
}

int32_t pliant_session_start_sharded(pliant_session_t* session, const pliant_dataset_t* dataset,
                                     pliant_sharded_t* model, const pliant_state_t* rest, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::capi::SessionCall call(session);
    pliant_session_t& known = call.session();
    const ShardedTurn of(model);
    if (known.sharded.get() != &of.core()) throw pliant::capi::wrong("this sharded model is another session's");
    pliant::capi::start_session(known, dataset, pliant::capi::read_or_default(rest, "rest"),
                                [&](const pliant::Dataset& data, pliant::TrainingState& brought) {
                                  known.session.start(data, *of.core().model, brought);
                                  of.core().is_started = true;
                                });
  });
}

int32_t pliant_session_attempt(pliant_session_t* session, int32_t (*work)(void* context), void* context,
                               int32_t* computed, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::capi::SessionCall call(session);
    const pliant_session_t& known = call.session();
    if (work == nullptr) throw pliant::capi::wrong("work is NULL");
    require(computed, "computed");
    *computed = 0;
    if (known.last_step == nullptr) static_cast<void>(known.step_in_hand());
    const bool is_done =
        known.last_step->attempt([&] { pliant::capi::call_back("work of an attempt", [&] { return work(context); }); });
    *computed = is_done ? 1 : 0;
  });
}

int32_t pliant_sharded_begin_pass(pliant_sharded_t* model, const int64_t* micro_batches, uint64_t count,
                                  pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    known->begin_pass(ranges_of(micro_batches, count));
  });
}

int32_t pliant_sharded_begin_micro_batch(pliant_sharded_t* model, uint64_t number, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] { ShardedTurn(model)->begin_micro_batch(static_cast<size_t>(number)); });
}

int32_t pliant_sharded_repeat_pass(pliant_sharded_t* model, const int64_t* micro_batches, uint64_t count,
                                   pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    known->repeat_pass(ranges_of(micro_batches, count));
  });
}

int32_t pliant_sharded_can_repeat_pass(pliant_sharded_t* model, uint64_t count, int32_t* can, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    require(can, "can");
    *can = known->can_repeat_pass(static_cast<size_t>(count)) ? 1 : 0;
  });
}

int32_t pliant_sharded_begin_evaluation(pliant_sharded_t* model, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] { ShardedTurn(model)->begin_evaluation(); });
}

int32_t pliant_sharded_enter(pliant_sharded_t* model, uint32_t module, int32_t direction, pliant_error_t* error) {
  return pliant::capi::answer(error,
                              [&] { ShardedTurn(model)->enter(pliant::ModuleId{module}, direction_of(direction)); });
}

int32_t pliant_sharded_leave(pliant_sharded_t* model, uint32_t module, int32_t direction, pliant_error_t* error) {
  return pliant::capi::answer(error,
                              [&] { ShardedTurn(model)->leave(pliant::ModuleId{module}, direction_of(direction)); });
}

int32_t pliant_sharded_end_pass(pliant_sharded_t* model, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] { ShardedTurn(model)->end_pass(); });
}

int32_t pliant_sharded_value(pliant_sharded_t* model, uint32_t parameter, int32_t dtype, const void** value,
                             pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    require(value, "value");
    check_dtype(dtype, known->compute_dtype(), "compute_dtype");
    *value = known->data(parameter_of(parameter));
  });
}

int32_t pliant_sharded_gradient(pliant_sharded_t* model, uint32_t parameter, int32_t dtype, void** gradient,
                                pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    require(gradient, "gradient");
    check_dtype(dtype, known->reduce_dtype(), "reduce_dtype");
    *gradient = known->gradient_data(parameter_of(parameter));
  });
}

int32_t pliant_sharded_prefetch(pliant_sharded_t* model, uint32_t parameter, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] { ShardedTurn(model)->prefetch(parameter_of(parameter)); });
}

int32_t pliant_sharded_fetch(pliant_sharded_t* model, uint32_t parameter, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] { ShardedTurn(model)->fetch(parameter_of(parameter)); });
}

int32_t pliant_sharded_release(pliant_sharded_t* model, uint32_t parameter, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] { ShardedTurn(model)->release(parameter_of(parameter)); });
}

int32_t pliant_sharded_squared_gradient_norm(pliant_sharded_t* model, double* norm, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    require(norm, "norm");
    *norm = known->squared_gradient_norm();
  });
}

int32_t pliant_sharded_update(pliant_sharded_t* model, int32_t (*each)(void* context, const pliant_shard_t* shard),
                              void* context, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    if (each == nullptr) throw pliant::capi::wrong("each is NULL");
    known->update([&](const pliant::ShardRange& range) {
      pliant_shard_t shard = PLIANT_INIT(pliant_shard_t);
      shard.parameter = static_cast<uint32_t>(range.parameter);
      shard.first = range.first;
      shard.count = range.count;
      shard.weights = range.weights;
      shard.gradient = range.gradient;
      shard.states = range.state.data();
      shard.state_count = range.state.size();
      pliant::capi::call_back("update of a shard", [&] { return each(context, &shard); });
    });
  });
}

int32_t pliant_sharded_read(pliant_sharded_t* model, uint32_t parameter, float* to, uint64_t count,
                            pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    static_cast<void>(given_array(to, count, "to"));
    known->read(parameter_of(parameter), {to, static_cast<size_t>(count)});
  });
}

int32_t pliant_sharded_write(pliant_sharded_t* model, uint32_t parameter, const float* values, uint64_t count,
                             pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    known->write(parameter_of(parameter), given_array(values, count, "values"));
  });
}

int32_t pliant_sharded_export(pliant_sharded_t* model, const char* file, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    require(file, "file");
    known->export_safetensors(file);
  });
}

int32_t pliant_sharded_look(pliant_sharded_t* model, pliant_sharded_facts_t* facts, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const ShardedTurn known(model);
    pliant::capi::check_size(facts, "facts");
    const pliant::ShardedMemory memory = known->memory();
    pliant_sharded_facts_t made{};
    made.compute_dtype = static_cast<int32_t>(known->compute_dtype());
    made.reduce_dtype = static_cast<int32_t>(known->reduce_dtype());
    made.weights = memory.weights;
    made.states = memory.state;
    made.sums = memory.sums;
    made.gathered = memory.gathered;
    made.gathered_most = memory.gathered_most;
    pliant::capi::write(facts, made, "facts");
  });
}
