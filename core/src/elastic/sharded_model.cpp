// ShardedModel: the program's side of sharded training, over the runtime and the session that it belongs to.
#include "pliant/sharded.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/printable.hpp"
#include "base/result.hpp"
#include "elastic/session_state.hpp"
#include "pliant/sdk/accelerator.hpp"
#include "sharded/files/safetensors.hpp"
#include "sharded/files/safetensors_parts.hpp"
#include "sharded/one_caller.hpp"
#include "sharded/rehearsal.hpp"
#include "sharded/runtime.hpp"

namespace pliant {

struct ShardedModel::State {
  using Call = sharded::OneCaller::Call;
  State(Session::State& of, const Config& config, std::vector<std::string> state)
      : session(of), runtime(config, *of.accelerator, of.device, *of.program_stream, *of.stream, std::move(state)) {
    using Begun = sharded::Runtime::Begun;
    runtime.watch([&of](Begun begun) {
      of.strike(begun == Begun::kGather ? elastic::InjectionPoint::kGather : elastic::InjectionPoint::kScatter);
    });
    of.has_sharded_model = true;
  }
  ~State() { session.has_sharded_model = false; }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  Session::State& session;
  sharded::Runtime runtime;
  sharded::OneCaller caller;
};

namespace {

Config with_coordinator(const Config& config) {
  if (!config.has("coordinator")) {
    throw Error(Status::kFailedPrecondition,
                "this program shards its model, which needs a coordinator: add --set coordinator.use=planned "
                "or, to the config, [coordinator] use = \"planned\"",
                Origin::kInput);
  }
  ConfigOverrides as_resolved;
  as_resolved.read_environment = false;
  return Config::open(config.file(), {"coordinator"}, as_resolved);
}

/// They are the names of arrays in snapshots, beside "weights".
void check_state(const std::vector<std::string>& state) {
  std::set<std::string_view> names{"weights"};
  for (const std::string& name : state) {
    sharded::check_name(name, "state");
    if (names.insert(name).second) continue;
    throw Error(Status::kInvalidArgument,
                fmt::format("two arrays of a sharded model have the name {}; its parameters have \"weights\", and each "
                            "state needs a unique name",
                            name),
                Origin::kInput);
  }
}

void require_f32(DType type, const char* option) {
  if (type == DType::kF32) return;
  throw Error(
      Status::kFailedPrecondition,
      fmt::format("[coordinator] {} = \"bf16\", but this program computes in f32 only; remove {}", option, option),
      Origin::kInput);
}

}  // namespace

ShardedModel::ShardedModel(Session& session, std::vector<std::string> state) {
  if (session.state_->has_sharded_model) {
    throw Error(Status::kFailedPrecondition,
                "this session has a sharded model already and can have only one: add the parameters of both to it, "
                "each part below its own module; freeze parameters that are not trained",
                Origin::kInput);
  }
  check_state(state);
  session.state_->open_device();
  state_ = std::make_unique<State>(*session.state_, with_coordinator(session.config()), std::move(state));
}
ShardedModel::~ShardedModel() {
  if (state_ && state_->session.sharded == &state_->runtime) state_->session.sharded = nullptr;
}
ShardedModel::ShardedModel(ShardedModel&&) noexcept = default;

void ShardedModel::check(const Config& config) {
  sharded::check_coordinator(config);
}

ParameterId ShardedModel::add(ParameterSpec parameter) {
  const State::Call call(state_->caller, "add");
  return ParameterId{state_->runtime.model.add(std::move(parameter))};
}
ModuleId ShardedModel::add(ModuleSpec module) {
  const State::Call call(state_->caller, "add");
  return ModuleId{state_->runtime.model.add(std::move(module))};
}

void ShardedModel::set_parameters(ModuleId module, const std::vector<ParameterId>& own,
                                  const std::vector<ParameterId>& external) {
  const State::Call call(state_->caller, "set_parameters");
  state_->runtime.set_parameters(state_->runtime.model.module_number(module), own, external);
}

void ShardedModel::begin_pass(RowRange rows) {
  begin_pass(std::span(&rows, 1));
}
void ShardedModel::begin_pass(std::span<const RowRange> micro_batches) {
  const State::Call call(state_->caller, "begin_pass");
  if (state_->session.added == 0) state_->session.strike(elastic::InjectionPoint::kForward);
  state_->runtime.begin_pass(micro_batches);
}
void ShardedModel::repeat_pass(RowRange rows) {
  repeat_pass(std::span(&rows, 1));
}
void ShardedModel::repeat_pass(std::span<const RowRange> micro_batches) {
  const State::Call call(state_->caller, "repeat_pass");
  if (state_->session.added == 0) state_->session.strike(elastic::InjectionPoint::kForward);
  state_->runtime.repeat_pass(micro_batches);
}
bool ShardedModel::can_repeat_pass(size_t micro_batches) const {
  const State::Call call(state_->caller, "can_repeat_pass");
  return state_->runtime.can_repeat_pass(micro_batches);
}
void ShardedModel::begin_micro_batch(size_t number) {
  const State::Call call(state_->caller, "begin_micro_batch");
  state_->runtime.begin_micro_batch(number);
}
void ShardedModel::begin_evaluation() {
  const State::Call call(state_->caller, "begin_evaluation");
  state_->runtime.begin_evaluation();
}
void ShardedModel::enter(ModuleId module, Direction direction) {
  const State::Call call(state_->caller, "enter");
  state_->runtime.enter(state_->runtime.model.module_number(module), direction);
}
void ShardedModel::leave(ModuleId module, Direction direction) {
  const State::Call call(state_->caller, "leave");
  state_->runtime.leave(state_->runtime.model.module_number(module), direction);
}
DType ShardedModel::compute_dtype() const {
  return state_->runtime.compute_dtype();
}
DType ShardedModel::reduce_dtype() const {
  return state_->runtime.reduce_dtype();
}
void* ShardedModel::data(ParameterId parameter) {
  state_->caller.require_no_other("data");
  return state_->runtime.value(state_->runtime.model.parameter_number(parameter));
}
void* ShardedModel::gradient_data(ParameterId parameter) {
  const State::Call call(state_->caller, "gradient_data");
  return state_->runtime.gradient(state_->runtime.model.parameter_number(parameter));
}
float* ShardedModel::value(ParameterId parameter) {
  state_->caller.require_no_other("value");
  require_f32(compute_dtype(), "compute_dtype");
  return static_cast<float*>(data(parameter));
}
float* ShardedModel::gradient(ParameterId parameter) {
  const State::Call call(state_->caller, "gradient");
  require_f32(reduce_dtype(), "reduce_dtype");
  return static_cast<float*>(gradient_data(parameter));
}
void ShardedModel::end_pass() {
  const State::Call call(state_->caller, "end_pass");
  state_->runtime.end_pass();
}
std::optional<ParameterId> ShardedModel::find(std::string_view name) const {
  const auto& rows = state_->runtime.model.parameters();
  const auto found =
      std::find_if(rows.begin(), rows.end(), [name](const sharded::ParameterRow& row) { return row.name == name; });
  if (found == rows.end()) return std::nullopt;
  return ParameterId{static_cast<uint32_t>(found - rows.begin())};
}
void ShardedModel::prefetch(ParameterId parameter) {
  const State::Call call(state_->caller, "prefetch");
  state_->runtime.prefetch(state_->runtime.model.parameter_number(parameter));
}
void ShardedModel::fetch(ParameterId parameter) {
  const State::Call call(state_->caller, "fetch");
  state_->runtime.fetch(state_->runtime.model.parameter_number(parameter));
}
void ShardedModel::release(ParameterId parameter) {
  const State::Call call(state_->caller, "release");
  state_->runtime.release(state_->runtime.model.parameter_number(parameter));
}
double ShardedModel::squared_gradient_norm() const {
  return state_->runtime.squared_gradient_norm();
}
void ShardedModel::update(const std::function<void(const ShardRange&)>& each) {
  const State::Call call(state_->caller, "update");
  state_->runtime.update(each);
}
void ShardedModel::visit_owned(const std::function<void(const ShardRange&)>& each) {
  const State::Call call(state_->caller, "visit_owned");
  state_->runtime.visit_owned(each);
}

namespace {

uint32_t number_of(const sharded::ModelTables& model, ParameterId parameter, size_t values, const char* verb) {
  const uint32_t number = model.parameter_number(parameter);
  const sharded::ParameterRow& row = model.parameter(number);
  if (values == row.elements) return number;
  throw Error(Status::kInvalidArgument,
              fmt::format("{} has {} elements, but {} are to be {}", row.name, row.elements, values, verb));
}

}  // namespace

void ShardedModel::read(ParameterId parameter, std::span<float> values) {
  const State::Call call(state_->caller, "read");
  state_->runtime.read(number_of(state_->runtime.model, parameter, values.size(), "read"), values);
}
void ShardedModel::write(ParameterId parameter, std::span<const float> values) {
  const State::Call call(state_->caller, "write");
  state_->runtime.write(number_of(state_->runtime.model, parameter, values.size(), "written"), values);
}

namespace {

/// What is wrong with it no restart mends.
sharded::SafetensorsParts open_weights(const std::filesystem::path& file) {
  Result<sharded::SafetensorsParts> opened = sharded::SafetensorsParts::open(file);
  if (!opened) throw opened.error().with_origin(Origin::kInput);
  return std::move(*opened);
}

std::string text_of(std::string_view type, const std::vector<int64_t>& shape) {
  return fmt::format("{}[{}]", type, fmt::join(shape, ","));
}

std::string text_of(const sharded::Tensor& tensor) {
  if (!tensor.dtype) return text_of(printable(tensor.other_type), tensor.shape);
  return text_of(sdk::name_of(static_cast<sdk::DType>(*tensor.dtype)), tensor.shape);
}

void require_readable(const std::filesystem::path& file, const sharded::Tensor& tensor,
                      const sharded::ParameterRow& row) {
  const bool has_floats = tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16;
  if (has_floats && tensor.shape == row.shape) return;
  throw Error(Status::kFailedPrecondition,
              fmt::format("{}: {} is {}, the model has {}{}", file.string(), row.name, text_of(tensor),
                          text_of("f32", row.shape),
                          has_floats ? "" : "; supported are f32, bf16 and f16: convert it to one of them"),
              Origin::kInput);
}

}  // namespace

void ShardedModel::import_safetensors(const std::filesystem::path& file) {
  const State::Call call(state_->caller, "import_safetensors");
  sharded::ModelTables& model = state_->runtime.model;
  if (model.is_closed()) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("import_safetensors of {} was called too late: import before Session::start, or write the "
                            "parameters one by one",
                            file.string()));
  }
  const auto parts = std::make_shared<sharded::SafetensorsParts>(open_weights(file));
  std::vector<sharded::SafetensorsParts::Place> places;
  for (const sharded::ParameterRow& row : model.parameters()) {
    const sharded::SafetensorsParts::Place* const place = parts->find(row.name);
    if (place == nullptr) {
      throw Error(Status::kNotFound,
                  fmt::format("{} has no tensor {}; it needs one per parameter of the model, with the same name",
                              file.string(), row.name),
                  Origin::kInput);
    }
    require_readable(file, *place->tensor, row);
    places.push_back(*place);
  }
  for (uint32_t number = 0; number < places.size(); ++number) {
    model.set_initialise(number, [parts, place = places[number]](std::span<float> values) {
      or_throw(parts->read_floats(place, values));
    });
  }
}

void ShardedModel::export_safetensors(const std::filesystem::path& file) {
  const State::Call call(state_->caller, "export_safetensors");
  sharded::SafetensorsHeader header;
  const auto& parameters = state_->runtime.model.parameters();
  for (const sharded::ParameterRow& row : parameters) header.tensors.push_back({row.name, DType::kF32, row.shape});
  std::vector<float> values;
  const auto read_next = [&](uint32_t number) {
    values.resize(parameters[number].elements);
    read(ParameterId{number}, values);
  };
  if (state_->session.form.rank != 0) {
    for (uint32_t number = 0; number < parameters.size(); ++number) read_next(number);
    return;
  }
  uint32_t number = 0;
  const auto written = sharded::write_safetensors(file, header, true, [&](sharded::SafetensorsSink& sink) -> Result<> {
    for (; number < parameters.size();) {
      read_next(number++);
      if (Result<> done = sink.write(values.data(), values.size() * sizeof(float)); !done) return done;
    }
    return {};
  });
  while (number < parameters.size()) read_next(number++);  // the others take part to the end
  or_throw(written);
}

ShardedMemory ShardedModel::memory() const {
  state_->caller.require_no_other("memory");
  return state_->runtime.memory();
}

void Session::start(Dataset dataset, ShardedModel& model, TrainingState& rest) {
  require_not_started();
  State& s = *state_;
  if (rest.gradient_size() != 0 || !rest.arrays().empty()) {
    throw Error(Status::kInvalidArgument,
                "the rest of a sharded program's state has a gradient or arrays; large data belongs into parameters "
                "and their states");
  }
  sharded::Runtime& runtime = model.state_->runtime;
  runtime.close_model();
  s.sharded = &runtime;
  try {
    begin(std::move(dataset), rest);
  } catch (...) {
    s.sharded = nullptr;
    throw;
  }
}

}  // namespace pliant
