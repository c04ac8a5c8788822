#include "model_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "pliant/error.hpp"
#include "sharded/files/safetensors_parts.hpp"
#include "sharded/trace/trace_report.hpp"

namespace pliant::cli {

namespace {

uint32_t add(sharded::ModelTables& model, std::string name, std::vector<int64_t> shape) {
  ParameterSpec parameter;
  parameter.name = std::move(name);
  parameter.shape = std::move(shape);
  parameter.initialise = [](std::span<float>) {};
  return model.add(std::move(parameter));
}

/// Empty: the root's.
std::string module_of(const std::string& tensor) {
  for (size_t begin = 0; begin < tensor.size();) {
    const size_t end = std::min(tensor.find('.', begin), tensor.size());
    const std::string_view part = std::string_view(tensor).substr(begin, end - begin);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    if (is_number && end < tensor.size()) return tensor.substr(0, end);
    begin = end + 1;
  }
  const size_t dot = tensor.rfind('.');
  return dot == std::string::npos ? std::string() : tensor.substr(0, dot);
}

}  // namespace

sharded::ModelTables layers_of(int64_t count, int64_t elements) {
  sharded::ModelTables model;
  model.add(ModuleSpec{.name = "model", .parent = std::nullopt, .own = {}, .external = {}});
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = fmt::format("layer.{}", i);
    const ParameterId weight{add(model, name + ".weight", {elements})};
    const ParameterId bias{add(model, name + ".bias", {1024})};
    model.add(ModuleSpec{.name = name, .parent = ModuleId{0}, .own = {weight, bias}, .external = {}});
  }
  model.close();
  return model;
}

sharded::ModelTables model_in(const std::string& file, const std::string& words) {
  const auto opened = sharded::SafetensorsParts::open(file);
  if (!opened) throw opened.error().with_message(words + opened.error().message()).with_origin(Origin::kInput);
  const sharded::SafetensorsParts& parts = *opened;
  sharded::ModelTables model;
  std::vector<std::pair<std::string, std::vector<ParameterId>>> modules;
  std::map<std::string, size_t> places;
  std::vector<ParameterId> of_root;
  for (const sharded::SafetensorsParts::Place& place : parts.places()) {
    const sharded::Tensor& tensor = *place.tensor;
    const bool is_trained = tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16 ||
                            tensor.dtype == DType::kF16 || tensor.dtype == DType::kF64 ||
                            tensor.other_type.starts_with('F');  // "F8_E4M3"
    if (!is_trained) continue;                                   // counters, positions
    const ParameterId parameter{add(model, tensor.name, tensor.shape)};
    std::string module = module_of(tensor.name);
    if (module.empty()) {
      of_root.push_back(parameter);
      continue;
    }
    const auto [known, is_new] = places.emplace(std::move(module), modules.size());
    if (is_new) modules.push_back({known->first, {}});
    modules[known->second].second.push_back(parameter);
  }
  model.add(ModuleSpec{.name = "model", .parent = std::nullopt, .own = of_root, .external = {}});
  for (auto& [name, own] : modules)
    model.add(ModuleSpec{.name = name, .parent = ModuleId{0}, .own = std::move(own), .external = {}});
  model.close();
  return model;
}

bool is_trace(const std::string& file) {
  if (file.ends_with(".safetensors.index.json")) return false;
  std::array<char, 8> begin{};
  std::ifstream in(file, std::ios::binary);
  in.read(begin.data(), begin.size());
  return in.gcount() > 0 && std::find(begin.begin(), begin.begin() + in.gcount(), '\0') == begin.begin() + in.gcount();
}

sharded::TraceFile sharded_trace_in(const std::string& file, const std::string& words) {
  const auto refused = [&words](const Error& error, const std::string& named) {
    return error.with_message(words + named + error.message()).with_origin(Origin::kInput);
  };
  Result<sharded::TraceFile> read = sharded::read_trace(file);
  if (!read) throw refused(read.error(), {});  // which names the file
  try {
    sharded::TraceFile trace = sharded::in_turn(std::move(*read));
    if (trace.model) return trace;
    throw Error(Status::kFailedPrecondition,
                "it is the trace of a job without sharding, which gathers nothing; trace a job that has [coordinator] "
                "and a program that shards its model");
  } catch (const Error& error) {
    throw refused(error, file + ": ");
  }
}

Recording recording_in(const std::string& file, const std::string& words) {
  Recording made;
  made.trace = sharded_trace_in(file, words);
  const sharded::TracedRank* from = nullptr;
  for (const sharded::TracedRank& rank : made.trace.ranks) {
    if (from != nullptr && from->generation == rank.generation) continue;
    const std::vector<sharded::TracedStep> steps = sharded::whole_steps(rank);
    if (steps.empty()) continue;
    from = &rank;
    const auto calls = [](const sharded::TracedStep& step) { return step.front().size(); };
    made.step = *std::max_element(steps.rbegin(), steps.rend(),
                                  [&](const auto& left, const auto& right) { return calls(left) < calls(right); });
  }
  if (from == nullptr) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("{}{} has no completely recorded step; trace a job until it commits "
                            "one",
                            words, file),
                Origin::kInput);
  }
  made.rank = from->rank;
  made.number = made.step.front().front().step;
  return made;
}

void check_model(const std::string& file, const std::string& words) {
  if (is_trace(file)) {
    static_cast<void>(recording_in(file, words));
  } else {
    static_cast<void>(model_in(file, words));
  }
}

}  // namespace pliant::cli
