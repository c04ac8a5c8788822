// pliant coordinator
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "commands.hpp"
#include "model_file.hpp"
#include "output.hpp"
#include "pliant/error.hpp"
#include "sharded/arena_books.hpp"
#include "sharded/exchange.hpp"
#include "sharded/rehearsal.hpp"

namespace pliant::cli {

namespace {

struct SimulateArguments {
  std::string file;
  std::string safetensors;
  int64_t layers = 8;
  int64_t elements = int64_t{1} << 20;
  int steps = 3;
  int64_t micro_batches = 1;  ///< of a step
  bool in_layer_order = false;
  bool lists = false;
};

/// One call, with words for its actions.
struct HeardCall {
  int step = 0;
  std::string call;  ///< "enter layer.0, backward"
  std::vector<std::string> actions;
};

struct SimulatedStep {
  int64_t collectives = 0;  ///< gathers
  int64_t gathered = 0;     ///< parameters
  int64_t ahead = 0;        ///< of these, for a later visit
  uint64_t bytes = 0;       ///< of these parameters, whole
  uint64_t most = 0;        ///< bytes whole at once, with gradients and what is on its way
  int64_t reduces = 0;      ///< collectives
};

const char* word_of(sharded::RehearsedCall::Kind kind) {
  constexpr const char* kWords[] = {"begin_pass", "enter", "leave", "end_pass", "end_step"};
  return kWords[static_cast<size_t>(kind)];
}

/// Adds up what a coordinator answers.
class Simulation {
 public:
  Simulation(const Config& config, const sharded::ModelTables& model, int32_t workers, size_t in_a_pass, bool lists)
      : model_(model),
        types_{sharded::dtype_of(config.coordinator().compute_dtype),
               sharded::dtype_of(config.coordinator().reduce_dtype)},
        books_(model, sharded::most_owned_at(model, workers), workers, types_,
               static_cast<uint64_t>(config.coordinator().budget.value_or(0)), in_a_pass),
        keeps_lists_(lists) {}

  void begin(int step) {
    steps.emplace_back();
    number_ = step;
  }
  void hear(const sharded::RehearsedCall& call) {
    books_.hear(call);
    steps.back().most = std::max(steps.back().most, books_.take_most());
    HeardCall heard{number_, word_of(call.kind), {}};
    if (call.module) {
      heard.call += fmt::format(" {}{}", model_.modules()[*call.module].name, call.backward ? ", backward" : "");
    }
    std::map<uint32_t, std::optional<uint32_t>> last;  // group of each kind
    for (const pliant_action& action : call.actions) {
      count(action, last[action.kind]);
      if (keeps_lists_) heard.actions.push_back(words_of(action));
    }
    if (keeps_lists_ && !heard.actions.empty()) calls.push_back(std::move(heard));
  }

  std::vector<SimulatedStep> steps;
  std::vector<HeardCall> calls;

 private:
  [[nodiscard]] uint64_t bytes(uint32_t parameter) const {
    return model_.parameter(parameter).elements * sharded::bytes_of(types_.whole);
  }
  void count(const pliant_action& action, std::optional<uint32_t>& group) {
    SimulatedStep& step = steps.back();
    const bool is_next = std::exchange(group, action.group) != action.group;
    if (action.kind == PLIANT_ACTION_REDUCE) step.reduces += is_next ? 1 : 0;
    if (action.kind != PLIANT_ACTION_GATHER) return;
    step.collectives += is_next ? 1 : 0;
    ++step.gathered;
    step.ahead += (action.flags & PLIANT_ACTION_PREFETCH) != 0 ? 1 : 0;
    step.bytes += bytes(action.parameter);
  }
  [[nodiscard]] std::string words_of(const pliant_action& action) const {
    if (action.kind == PLIANT_ACTION_DROP_TRACE) return "drop trace";
    if (action.kind == PLIANT_ACTION_BOUND_WAITS) return fmt::format("bound waits {}", action.place);
    const std::string& name = model_.parameter(action.parameter).name;
    switch (action.kind) {
      case PLIANT_ACTION_GATHER:
        return fmt::format("gather{} {}", (action.flags & PLIANT_ACTION_PREFETCH) != 0 ? " ahead" : "", name);
      case PLIANT_ACTION_WAIT:
        return "wait " + name;
      case PLIANT_ACTION_RELEASE:
        return "release " + name;
      default:
        return "reduce " + name;
    }
  }

  const sharded::ModelTables& model_;
  const sharded::ArenaBooks::Types types_;
  sharded::ArenaBooks books_;
  const bool keeps_lists_;
  int number_ = 0;
};

std::string mebibytes(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 1048576.0);
}

std::string text_of(const Simulation& simulation) {
  std::string text;
  for (const HeardCall& one : simulation.calls)
    text += fmt::format("step {}: {}: {}\n", one.step + 1, one.call, fmt::join(one.actions, "; "));
  if (!text.empty()) text += "\n";
  std::vector<std::vector<std::string>> rows{
      {"step", "collectives", "gathered", "of it ahead", "bytes", "whole at once", "reduces"}};
  for (size_t i = 0; i < simulation.steps.size(); ++i) {
    const SimulatedStep& one = simulation.steps[i];
    rows.push_back({std::to_string(i + 1), grouped(one.collectives), grouped(one.gathered), grouped(one.ahead),
                    mebibytes(one.bytes), mebibytes(one.most), grouped(one.reduces)});
  }
  return text + table(rows);
}

std::string json_of(const Simulation& simulation, const std::string& use, const sharded::ModelTables& model,
                    bool lists) {
  nlohmann::ordered_json json;
  json["schema"] = "pliant.coordinator_simulate/1";
  json["coordinator"] = use;
  json["parameters"] = model.parameters().size();
  json["elements"] = model.elements();
  json["modules"] = model.modules().size();
  json["steps"] = nlohmann::ordered_json::array();
  for (const SimulatedStep& one : simulation.steps) {
    json["steps"].push_back({{"collectives", one.collectives},
                             {"gathered", one.gathered},
                             {"ahead", one.ahead},
                             {"bytes", one.bytes},
                             {"whole_at_once", one.most},
                             {"reduces", one.reduces}});
  }
  if (lists) json["calls"] = nlohmann::ordered_json::array();
  for (const HeardCall& one : simulation.calls)
    json["calls"].push_back({{"step", one.step + 1}, {"call", one.call}, {"actions", one.actions}});
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int simulate(const Invocation& invocation, const SimulateArguments& arguments) {
  const Config read = Config::open(arguments.file, {}, invocation.overrides);
  if (!read.has("coordinator")) {
    throw Error(Status::kFailedPrecondition,
                fmt::format("{} has no [coordinator]; add one, with use = \"zero3\" or \"eager\"", arguments.file),
                ExitCode::kUsage);
  }
  const Config config = Config::open(arguments.file, {"coordinator"}, invocation.overrides);
  const sharded::ModelTables model =
      arguments.safetensors.empty() ? layers_of(arguments.layers, arguments.elements) : model_in(arguments.safetensors);
  const auto workers = static_cast<int32_t>(config.run().workers);
  const auto in_a_pass = static_cast<size_t>(arguments.in_layer_order ? arguments.micro_batches : 1);
  const int64_t passes = arguments.in_layer_order ? 1 : arguments.micro_batches;
  Simulation simulation(config, model, workers, in_a_pass, arguments.lists);
  sharded::simulate(
      config, model, workers, {arguments.steps, passes, in_a_pass}, [&simulation](int step) { simulation.begin(step); },
      [&simulation](const sharded::RehearsedCall& call) { simulation.hear(call); });
  return emit(invocation.json ? json_of(simulation, config.use("coordinator"), model, arguments.lists)
                              : text_of(simulation));
}

}  // namespace

void add_coordinator(CLI::App& app, Invocation& invocation) {
  CLI::App* group = app.add_subcommand("coordinator", "Coordinators of sharded parameters");
  group->require_subcommand(1);
  group->footer(
      "Example:\n  pliant coordinator simulate samples/sharded_trainer/pliant.toml\n\n"
      "Every command takes --set, --plugin-dir, --color, -v and -q: see pliant --help");
  CLI::App* command =
      group->add_subcommand("simulate", "What the coordinator of a config does over a model, without a device");
  auto arguments = std::make_shared<SimulateArguments>();
  command->add_option("CONFIG", arguments->file, "The config, which has [coordinator]")->required();
  CLI::Option* layers = command
                            ->add_option("--layers", arguments->layers,
                                         "Layers of the model, each a weight and a bias of 1024. Default: 8")
                            ->type_name("N")
                            ->check(CLI::Range(1, 10000));
  CLI::Option* elements =
      command->add_option("--elements", arguments->elements, "Elements of each weight. Default: 1048576")
          ->type_name("N")
          ->check(CLI::Range(0, 1 << 30));
  command
      ->add_option("--safetensors", arguments->safetensors,
                   "Take names and shapes from this file instead; a module is what names have up to their first number")
      ->type_name("FILE")
      ->excludes(layers)
      ->excludes(elements);
  command->add_option("--steps", arguments->steps, "Steps. Default: 3")->type_name("N")->check(CLI::Range(1, 1000));
  command
      ->add_option("--micro-batches", arguments->micro_batches,
                   "Micro-batches of a step, each with a pass of its own: a forward and a backward. Default: 1")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  command->add_flag("--layer-order", arguments->in_layer_order,
                    "One pass over all micro-batches of a step: each module is visited once for all of them");
  command->add_flag("--lists", arguments->lists, "Show every call that was answered with actions, and these");
  add_json(*command, invocation);
  command->footer(
      "Every answer is held against the rules that jobs hold it against. Modules are visited in the order of the\n"
      "model, backward the other way round.\n\n"
      "Examples:\n"
      "  pliant coordinator simulate samples/sharded_trainer/pliant.toml\n"
      "  pliant coordinator simulate pliant.toml --micro-batches 4 --layer-order\n"
      "  pliant coordinator simulate pliant.toml --safetensors model.safetensors --lists\n\n"
      "Every command takes --set, --plugin-dir, --color, -v and -q: see pliant --help");
  command->callback([&invocation, arguments] {
    invocation.action = [&invocation, arguments] { return simulate(invocation, *arguments); };
  });
}

}  // namespace pliant::cli
