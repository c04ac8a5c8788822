// pliant coordinator
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/whole_file.hpp"
#include "commands.hpp"
#include "coordinator/comparison.hpp"
#include "coordinator/costs.hpp"
#include "coordinator/simulation.hpp"
#include "coordinator/views.hpp"
#include "model_file.hpp"
#include "names.hpp"
#include "output.hpp"
#include "pliant/error.hpp"
#include "units.hpp"
#include "values.hpp"

namespace pliant::cli {

namespace {

struct SimulateArguments {
  std::string file;
  std::string safetensors;
  std::string trace;
  int64_t layers = 8;
  int64_t elements = int64_t{1} << 20;
  int steps = 3;
  int64_t micro_batches = 1;  ///< of a step
  bool lists = false;
  std::string coordinators;  ///< names with commas between them
  std::string budgets;       ///< likewise
  std::string figure_file;
  CostArguments costs;
};

std::vector<uint64_t> budgets_in(const std::string& list) {
  std::vector<uint64_t> budgets;
  if (list.empty()) return budgets;
  for (const std::string& word : names_in("--budget", list, "512MiB,1GiB,2GiB")) {
    const uint64_t bytes = bytes_in("--budget", word);
    if (std::find(budgets.begin(), budgets.end(), bytes) == budgets.end()) budgets.push_back(bytes);
  }
  return budgets;
}

std::vector<std::string> coordinators_in(const std::string& list, const std::string& own) {
  if (list.empty()) return {own};
  std::vector<std::string> names;
  for (std::string& name : names_in("--compare", list, "zero3,planned")) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

void refuse_arguments(const char* what) {
  throw Error(Status::kInvalidArgument, what, Origin::kInput);
}

int show_comparison(const Invocation& invocation, const SimulateArguments& arguments, const Config& config,
                    const SimulationQuestion& question) {
  if (arguments.lists) refuse_arguments("--lists shows one simulation only; omit it with --compare or --budget");
  const std::vector<uint64_t> budgets = budgets_in(arguments.budgets);
  if (!arguments.figure_file.empty() && budgets.size() < 2) {
    refuse_arguments("--plot draws time against budget; give two or more budgets, e.g. --budget 512MiB,1GiB,2GiB");
  }
  const std::vector<ComparedRun> runs =
      compare_runs(config, question, coordinators_in(arguments.coordinators, config.use("coordinator")), budgets);
  if (!arguments.figure_file.empty()) {
    const Result<> written = write_whole(arguments.figure_file, comparison_figure(runs), true);
    if (!written) throw written.error().with_message("--plot: " + written.error().message());
  }
  return emit(invocation.json ? comparison_json(runs, question) : comparison_text(runs, question));
}

/// What lies between the calls of a recording is what the program computed, where the CPU computed it.
void require_computed_there(const Recording& recording, const std::string& file) {
  if (recording.trace.host_visible == true) return;
  const char* const why = recording.trace.host_visible
                              ? "was recorded with a device that computes asynchronously: the time between two calls "
                                "is that of launching work, not of computing"
                              : "is of an older version and does not say whether a device computed asynchronously: the "
                                "time between two calls may be only that of launching work";
  throw Error(Status::kFailedPrecondition,
              fmt::format("--trace: {} {}; give the compute cost yourself: --flops RATE and --tokens N", file, why),
              Origin::kInput);
}

int simulate(const Invocation& invocation, const SimulateArguments& arguments) {
  const SimulationCosts costs = costs_of(arguments.costs);
  const Config read = Config::open(arguments.file, {}, invocation.overrides);
  std::optional<Recording> recording;
  if (!arguments.trace.empty()) recording = recording_in(arguments.trace, "--trace: ");
  const bool as_recorded = recording && arguments.costs.flops.empty() && arguments.costs.tokens.empty();
  if (as_recorded) require_computed_there(*recording, arguments.trace);
  const sharded::ModelTables model = recording ? *recording->trace.model
                                     : arguments.safetensors.empty()
                                         ? layers_of(arguments.layers, arguments.elements)
                                         : model_in(arguments.safetensors, "--safetensors: ");
  if (!read.has("coordinator")) {
    throw Error(
        Status::kFailedPrecondition,
        fmt::format(
            "{} has no [coordinator]; add --set coordinator.use=planned or the section, with use = \"planned\", "
            "\"zero3\" or \"eager\"",
            arguments.file),
        Origin::kInput);
  }
  const Config config = Config::open(arguments.file, {"coordinator"}, invocation.overrides);
  SimulationQuestion question{.model = model,
                              .recorded = recording ? &recording->step : nullptr,
                              .computes_as_recorded = as_recorded,
                              .costs = costs,
                              .workers = static_cast<int32_t>(config.run().workers),
                              .steps = arguments.steps,
                              .passes = arguments.micro_batches,
                              .lists = arguments.lists};
  const bool compares = !arguments.coordinators.empty() || !arguments.budgets.empty();
  if (compares) return show_comparison(invocation, arguments, config, question);
  if (!arguments.figure_file.empty())
    refuse_arguments("--plot draws time against budget; give the budgets with --budget");
  const Simulation made = simulate(config, question);
  return emit(invocation.json ? simulation_json(made, question) : simulation_text(made, question));
}

void add_model_options(CLI::App& command, SimulateArguments& arguments) {
  CLI::Option* layers =
      command
          .add_option("--layers", arguments.layers,
                      "Number of layers of the model, each with a weight and a bias of 1024 elements. Default: 8")
          ->type_name("N")
          ->check(within(1, 1000000));
  CLI::Option* elements =
      command.add_option("--elements", arguments.elements, "Number of elements of each weight. Default: 1048576")
          ->type_name("N")
          ->check(within(0, 1 << 30));
  CLI::Option* safetensors = command
                                 .add_option("--safetensors", arguments.safetensors,
                                             "Take names and shapes from this file instead; parameters whose names "
                                             "agree up to the first number form a module")
                                 ->type_name("FILE")
                                 ->excludes(layers)
                                 ->excludes(elements);
  command.add_option("--steps", arguments.steps, "Steps. Default: 3")->type_name("N")->check(within(1, 1000));
  CLI::Option* micro_batches =
      command
          .add_option("--micro-batches", arguments.micro_batches,
                      "Number of micro-batches per step, each with its own pass: a forward and a backward. Default: 1")
          ->type_name("N")
          ->check(within(1, 1000));
  command
      .add_option("--trace", arguments.trace,
                  "Take the model, the visits of the longest step and the compute times between them from this trace "
                  "of a run. With --flops or --tokens compute times are calculated instead; this is needed if a device "
                  "computed asynchronously")
      ->type_name("TRACE.json")
      ->excludes(layers)
      ->excludes(elements)
      ->excludes(safetensors)
      ->excludes(micro_batches);
}

void add_cost_options(CLI::App& command, CostArguments& costs) {
  command
      .add_option("--costs", costs.bench_file,
                  "Take the cost of collectives from this file, written by `pliant accel bench NAME --json`")
      ->type_name("BENCH.json");
  command.add_option("--latency", costs.latency, "Fixed time of a collective, regardless of its size. Default: 20us")
      ->type_name("TIME");
  command
      .add_option("--bandwidth", costs.bandwidth,
                  "Bandwidth at which a rank receives from the others in a collective. Default: 25GB/s")
      ->type_name("RATE");
  command
      .add_option(
          "--launch", costs.launch,
          "Fixed time of any other work of the exchange (casts, zeros, sums), regardless of its size. Default: 5us")
      ->type_name("TIME");
  command
      .add_option("--memory-bandwidth", costs.memory_bandwidth,
                  "Bandwidth at which such work reads and writes. Default: 1000GB/s")
      ->type_name("RATE");
  command
      .add_option("--flops", costs.flops,
                  "Floating-point operations per second of the device in this model. A module needs two per element "
                  "and token forward, four backward. Default: 100T")
      ->type_name("RATE");
  command.add_option("--tokens", costs.tokens, "Number of tokens that a rank computes in a pass. Default: 4096")
      ->type_name("N");
}

void add_comparison_options(CLI::App& command, SimulateArguments& arguments) {
  command
      .add_option(
          "--compare", arguments.coordinators,
          "Simulate several coordinators in one table; each uses its [coordinator.NAME] of the config, or defaults")
      ->check(offers_plugins("coordinator"))
      ->type_name("NAME,...");
  command
      .add_option("--budget", arguments.budgets,
                  "Simulate with each of these instead of [coordinator] budget; a coordinator that keeps no budget is "
                  "shown with its own peak")
      ->type_name("SIZE,...");
  command
      .add_option("--plot", arguments.figure_file,
                  "Plot the time of a step against the budget into this SVG file, one line per coordinator")
      ->type_name("FILE.svg")
      ->check(figure_file());
}

}  // namespace

void add_coordinator(CLI::App& app, Invocation& invocation) {
  CLI::App* group = app.add_subcommand("coordinator", "Simulate coordinators of sharded parameters");
  group->require_subcommand(1);
  group->footer(
      "Example:\n  pliant coordinator simulate samples/sharded_trainer/pliant.toml\n\n"
      "Every command takes --set, --plugin-dir, --color, -v and -q: see pliant --help");
  CLI::App* command = group->add_subcommand(
      "simulate",
      "Simulate the coordinator of a config over a model: its actions and the time of steps, without a device");
  auto arguments = std::make_shared<SimulateArguments>();
  command->add_option("CONFIG", arguments->file, "The config file; it needs [coordinator]")->required();
  add_model_options(*command, *arguments);
  add_comparison_options(*command, *arguments);
  add_cost_options(*command, arguments->costs);
  command->add_flag("--lists", arguments->lists, "Show the actions of every call that returned some");
  add_json(*command, invocation);
  command->footer(
      "Every answer is checked against the rules that jobs check. Modules are visited in the order of the model, and "
      "backward in reverse. Times are computed, not measured: each of [run] workers ranks has a device with one "
      "stream for the program and one for the exchange.\n\n"
      "Examples:\n"
      "  pliant coordinator simulate samples/sharded_trainer/pliant.toml\n"
      "  pliant coordinator simulate pliant.toml --safetensors model.safetensors --lists\n"
      "  pliant coordinator simulate pliant.toml --compare zero3,planned --costs bench.json --flops 250T\n"
      "  pliant coordinator simulate pliant.toml --budget 1GiB,2GiB,4GiB,8GiB --plot curve.svg\n"
      "  pliant coordinator simulate pliant.toml --trace trace.json --budget 512MiB,1GiB,2GiB\n\n"
      "Every command takes --set, --plugin-dir, --color, -v and -q: see pliant --help");
  command->callback([&invocation, arguments] {
    invocation.action = [&invocation, arguments] { return simulate(invocation, *arguments); };
  });
}

}  // namespace pliant::cli
