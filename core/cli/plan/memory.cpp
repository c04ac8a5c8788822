#include "plan/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "model_file.hpp"
#include "output.hpp"
#include "pliant/error.hpp"
#include "sharded/memory/whole_memory.hpp"
#include "sharded/predicted_memory.hpp"
#include "sharded/shards/exchange.hpp"
#include "sharded/trace/traced_program.hpp"
#include "units.hpp"

namespace pliant::cli {

namespace {

std::string bytes_text(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes > 0 && bytes < uint64_t{1} << 20U) return text_of_bytes(value);
  if (bytes >= uint64_t{10} << 30U) return fmt::format("{:.1f} GiB", value / (1 << 30));
  return fmt::format("{:.1f} MiB", value / (1 << 20));
}

}  // namespace

MemoryStudy::MemoryStudy(const Study& study, const std::string& model_file, TrainedHow trained_how, int64_t world_size,
                         int64_t most)
    : file(model_file),
      coordinator(study.config().use("coordinator")),
      how(trained_how),
      valid_sizes(study.plan().count()) {
  const Config& config = study.config();
  std::optional<Recording> recording;
  if (is_trace(model_file)) recording = recording_in(model_file, "--memory: ");
  const sharded::ModelTables model = recording ? *recording->trace.model : model_in(model_file, "--memory: ");
  if (recording) {
    visits = {recording->rank, recording->number, sharded::most_micro_batches(recording->step)};
    how.in_layer_order = how.in_layer_order || sharded::is_in_layer_order(recording->step);
  }
  describe(model, config);
  std::vector<SizeReport> sizes = world_size > 0 ? std::vector<SizeReport>{study.shown()} : study.reports(most);
  for (const SizeReport& size : sizes) {
    const auto ranks = static_cast<int32_t>(size.world_size);
    const sharded::MemoryOfWhat what{ranks,      study.plan().global_batch, study.plan().granule, size.micro_batch,
                                     how.states, how.in_layer_order};
    try {
      const ShardedMemory memory = recording ? sharded::predicted_memory(config, model, recording->step, what)
                                             : sharded::predicted_memory(config, model, what);
      rows.push_back({"", size, memory, sharded::deepspeed_estimate(model, ranks)});
    } catch (const Error& error) {
      const bool is_last = &size == &sizes.back();
      const bool none = std::all_of(rows.begin(), rows.end(), [](const Row& row) { return !row.refusal.empty(); });
      if (error.status() != Status::kResourceExhausted || (is_last && none)) throw;
      rows.push_back({error.message(), size, {}, 0});
    }
  }
}

void MemoryStudy::describe(const sharded::ModelTables& model, const Config& config) {
  budget = static_cast<uint64_t>(config.coordinator().budget.value_or(0));
  elements = model.elements();
  parameters = model.parameters().size();
  const uint64_t whole = sharded::bytes_of(sharded::dtype_of(config.coordinator().compute_dtype));
  const uint64_t reduce = sharded::bytes_of(sharded::dtype_of(config.coordinator().reduce_dtype));
  for (const sharded::ModuleRow& module : model.modules()) {
    modules.push_back(module.name);
    uint64_t bytes = 0;
    for (const uint32_t number : module.used) {
      const uint64_t count = model.parameter(number).elements;
      bytes += sharded::WholeMemory::taken_by(count * whole) + sharded::WholeMemory::taken_by(count * reduce);
    }
    if (bytes < largest_bytes) continue;
    largest = module.name;
    largest_bytes = bytes;
  }
  replicated = elements * sizeof(float) * static_cast<uint64_t>(2 + how.states);
}

std::string memory_text(const MemoryStudy& memory) {
  std::string text = fmt::format(
      "model       {}: {} parameter{}, {} elements, {} module{}\n"
      "largest     {}: {} with its gradients\n"
      "coordinator {}, {}{}\n"
      "replicated  {} on every rank, without [coordinator]\n",
      memory.file, grouped(static_cast<int64_t>(memory.parameters)), memory.parameters == 1 ? "" : "s",
      grouped(static_cast<int64_t>(memory.elements)), grouped(static_cast<int64_t>(memory.modules.size())),
      memory.modules.size() == 1 ? "" : "s", memory.largest, bytes_text(memory.largest_bytes), memory.coordinator,
      memory.budget == 0 ? "no budget" : "budget " + bytes_text(memory.budget),
      memory.how.in_layer_order ? ", one pass per step" : "", bytes_text(memory.replicated));
  if (memory.visits) {
    const bool has_several = memory.visits->micro_batches > 1 && !memory.how.in_layer_order;
    text += fmt::format(
        "visits      of step {} of rank {}{}\n", memory.visits->step, memory.visits->rank,
        has_several ? fmt::format(", passes over {} micro-batches", memory.visits->micro_batches) : std::string());
  }
  text += "\n";
  std::vector<std::vector<std::string>> cells{
      {"world size", "weights", "optimizer", "gradients", "peak gathered", "per rank", "DeepSpeed's estimate"}};
  std::string refused;
  for (const MemoryStudy::Row& row : memory.rows) {
    if (!row.refusal.empty()) {
      refused += fmt::format("\nworld size {}: {}", row.size.world_size, row.refusal);
      cells.push_back({std::to_string(row.size.world_size), "-", "-", "-", "-", "-", "-"});
      continue;
    }
    cells.push_back({std::to_string(row.size.world_size), bytes_text(row.memory.weights), bytes_text(row.memory.state),
                     bytes_text(row.memory.sums), bytes_text(row.memory.gathered_most), bytes_text(row.all()),
                     bytes_text(row.deepspeed)});
  }
  if (!refused.empty()) refused += "\n";
  std::string others;
  if (const auto shown = static_cast<int64_t>(memory.rows.size()); shown > 1 && shown < memory.valid_sizes) {
    others =
        fmt::format("({} of {} valid sizes; --json has {})\n", shown, memory.valid_sizes,
                    memory.valid_sizes <= kMostListed ? std::string("them all") : fmt::format("about {}", kSomeListed));
  }
  return text + table(cells, 0) + others + refused +
         "\nActivations and other memory of the program are not included. DeepSpeed's estimate is for fp16 with f32 "
         "masters.\n";
}

std::string memory_json(const MemoryStudy& memory) {
  nlohmann::ordered_json json;
  json["schema"] = "pliant.plan_memory/1";
  json["model"] = memory.file;
  json["visits"] = nullptr;
  if (memory.visits) {
    json["visits"] = {
        {"rank", memory.visits->rank}, {"step", memory.visits->step}, {"micro_batches", memory.visits->micro_batches}};
  }
  json["coordinator"] = memory.coordinator;
  json["budget"] = memory.budget;
  json["parameters"] = memory.parameters;
  json["elements"] = memory.elements;
  json["modules"] = memory.modules;
  json["largest_module"] = {{"name", memory.largest}, {"bytes", memory.largest_bytes}};
  json["optimizer_states"] = memory.how.states;
  json["layer_order"] = memory.how.in_layer_order;
  json["replicated"] = memory.replicated;
  json["world_size_count"] = memory.valid_sizes;
  json["world_sizes"] = nlohmann::ordered_json::array();
  for (const MemoryStudy::Row& row : memory.rows) {
    if (!row.refusal.empty()) {
      json["world_sizes"].push_back({{"world_size", row.size.world_size}, {"refused", row.refusal}});
      continue;
    }
    json["world_sizes"].push_back({{"world_size", row.size.world_size},
                                   {"micro_batch", row.size.micro_batch},
                                   {"weights", row.memory.weights},
                                   {"optimizer", row.memory.state},
                                   {"gradients", row.memory.sums},
                                   {"whole_at_once", row.memory.gathered_most},
                                   {"bytes_of_a_rank", row.all()},
                                   {"deepspeed_estimate", row.deepspeed}});
  }
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace pliant::cli
