// pliant plan
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/inside.hpp"
#include "base/whole_file.hpp"
#include "commands.hpp"
#include "config/state.hpp"
#include "elastic/run_directory.hpp"
#include "model_file.hpp"
#include "names.hpp"
#include "output.hpp"
#include "plan/figure.hpp"
#include "plan/memory.hpp"
#include "plan/study.hpp"
#include "plan/views.hpp"
#include "pliant/error.hpp"
#include "pliant/sharded.hpp"
#include "values.hpp"

namespace pliant::cli {

namespace {

struct PlanArguments {
  std::string file;
  int64_t world_size = 0;
  int64_t nodes = 0;
  std::string policies;  ///< names with commas between them
  std::string figure_file;
  std::string model_file;  ///< .safetensors or a trace, for --memory
  int64_t states = 2;
  bool in_layer_order = false;
};

Config open_config(const Invocation& invocation, const PlanArguments& arguments) {
  const Config read = Config::open(arguments.file, {}, invocation.overrides);
  ConfigNeeds needs{"elasticity"};
  for (const char* const section : {"lr", "coordinator"}) {
    if (read.has(section)) needs.insert(section);
  }
  return Config::parse(detail::inside(read).opening.text, needs, invocation.overrides,
                       arguments.file);  // a pipe can be read but once
}

Study study_of(const Config& config, int64_t world_size) {
  try {
    return {config, world_size};
  } catch (const Error& error) {
    if (error.status() == Status::kIncompatibleWorldSize && world_size > 0) {
      throw with_changes(config, error, world_size, elastic::batch_kept_by(config.file()));
    }
    throw;
  }
}

/// A policy that has no place for `world_size` in its plan is looked at without one.
Compared compare_one(const Config& config, const std::string& policy, int64_t world_size) {
  try {
    const Config other = with_plugin(config, "elasticity", policy);
    Compared made{other.use("elasticity"), Study(other, 0), "", ""};
    if (world_size == 0) return made;
    try {
      Study there(other, world_size);
      if (there.plan().global_batch == made.study->plan().global_batch) {
        made.study = std::move(there);
      } else {
        made.remark =
            fmt::format("at world size {} it plans another global batch, {} rows; a running job keeps its own",
                        world_size, there.plan().global_batch);
      }
    } catch (const Error& error) {
      if (error.status() != Status::kIncompatibleWorldSize) throw;
    }
    return made;
  } catch (const Error& error) {
    if (error.origin() == Origin::kPlugin) throw;
    return {policy, std::nullopt, error.message(), ""};
  }
}

std::vector<Compared> compare(const Config& config, const PlanArguments& arguments) {
  std::vector<Compared> all;
  for (const std::string& policy : names_in("--compare", arguments.policies, "v0.1,v0.2,exact")) {
    const bool twice = std::any_of(all.begin(), all.end(), [&](const Compared& one) { return one.policy == policy; });
    if (!twice) all.push_back(compare_one(config, policy, arguments.world_size));
  }
  const bool none = std::none_of(all.begin(), all.end(), [](const Compared& one) { return one.study.has_value(); });
  if (none) {
    std::string message = "--compare: no policy can plan this config";
    for (const Compared& one : all) message += fmt::format("\n  {}: {}", one.policy, one.refusal);
    throw Error(Status::kInvalidArgument, message, Origin::kInput);
  }
  return all;
}

void write_figure(const std::string& file, const std::vector<Compared>& policies) {
  std::vector<Series> series;
  const WorldRange sizes = compared_sizes(policies);
  for (const Compared& one : policies) {
    if (!one.study) continue;
    const std::string remark = fmt::format("mean {:.1f} %, global batch {}, {} valid sizes",
                                           100 * one.study->mean_efficiency(sizes.first, sizes.last),
                                           one.study->plan().global_batch, one.study->plan().count());
    series.push_back({one.policy, remark, [&study = *one.study](int64_t ranks) { return study.efficiency_of(ranks); }});
  }
  const std::string figure =
      efficiency_figure(series, sizes.first, sizes.last, "Device time that computes, by cluster size");
  const Result<> written = write_whole(file, figure, true);
  if (written) return;
  throw written.error().with_message("--plot: " + written.error().message());
}

int show_plan(const Invocation& invocation, PlanArguments arguments) {
  const Config config = open_config(invocation, arguments);
  if (arguments.nodes > 0) arguments.world_size = ranks_of_nodes(config, arguments.nodes);
  check_scheduler(config);
  ShardedModel::check(config);
  if (!arguments.policies.empty()) {
    const std::vector<Compared> all = compare(config, arguments);
    if (!arguments.figure_file.empty()) write_figure(arguments.figure_file, all);
    return emit(invocation.json ? compare_json(all, arguments.world_size) : compare_text(all, arguments.world_size));
  }
  if (!arguments.model_file.empty()) {
    if (!config.has("coordinator")) {
      check_model(arguments.model_file, "--memory: ");  // a file without a model has no use for a coordinator
      throw Error(Status::kFailedPrecondition,
                  fmt::format("--memory: {} has no [coordinator], so every rank holds the whole model; add "
                              "--set coordinator.use=planned",
                              arguments.file),
                  Origin::kInput);
    }
    const Study study = study_of(config, arguments.world_size);
    const int64_t listed = study.plan().count() <= kMostListed ? kMostListed : kSomeListed;
    const MemoryStudy memory(study, arguments.model_file, {arguments.states, arguments.in_layer_order},
                             arguments.world_size, invocation.json ? listed : kMostRows);
    return emit(invocation.json ? memory_json(memory) : memory_text(memory));
  }
  Study study = study_of(config, arguments.world_size);
  for (const std::string& warning : study.warnings()) {
    if (!invocation.quiet) complain(invocation, fmt::format("pliant: warning: {}", warning));
  }
  const std::string text = invocation.json ? plan_json(study) : plan_text(study);
  if (!arguments.figure_file.empty()) {
    std::vector<Compared> alone;
    alone.push_back({study.planner().policy(), std::move(study), "", ""});
    write_figure(arguments.figure_file, alone);
  }
  return emit(text);
}

}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("plan", "Show the global batch and the valid world sizes");
  const auto given = std::make_shared<PlanArguments>();
  command.add_option("CONFIG", given->file, "The config file, often pliant.toml")->required();
  CLI::Option* ranks = command
                           .add_option("--world-size", given->world_size,
                                       "Plan for this many ranks. If the size is not valid, the error names the "
                                       "nearest valid ones and changes of the config that make it valid. Default: the "
                                       "size that [run] workers starts, else the largest valid one")
                           ->check(within(int64_t{1}, int64_t{1} << 40))
                           ->type_name("N");
  command.add_option("--nodes", given->nodes, "Plan for this many whole nodes of num_gpus_per_node devices")
      ->check(within(int64_t{1}, int64_t{1} << 40))
      ->type_name("N")
      ->excludes(ranks);
  CLI::Option* compare =
      command
          .add_option("--compare", given->policies,
                      "Compare several policies with the same options in one table, e.g. v0.1,v0.2,exact")
          ->check(offers_plugins("elasticity"))
          ->type_name("POLICY,...");
  CLI::Option* plot =
      command
          .add_option("--plot", given->figure_file,
                      "Plot efficiency against cluster size into this SVG file; with --compare one line per policy")
          ->type_name("FILE.svg")
          ->check(figure_file());
  CLI::Option* memory =
      command
          .add_option("--memory", given->model_file,
                      "Show the memory per rank of a sharded model by world size, without activations. FILE: a "
                      ".safetensors file, an index or folder of several, or the trace of a run, which adds the order "
                      "of visits. Runs nothing")
          ->type_name("FILE")
          ->excludes(compare)
          ->excludes(plot);
  command
      .add_option("--optimizer-states", given->states,
                  "For --memory: number of arrays that the optimizer keeps per weight. Default: 2, as AdamW")
      ->check(within(int64_t{0}, int64_t{64}))
      ->type_name("N")
      ->needs(memory);
  command
      .add_flag("--layer-order", given->in_layer_order,
                "For --memory: each step is one pass over all its micro-batches, so a module is visited once for all "
                "of them; not needed for a trace")
      ->needs(memory);
  add_json(command, invocation);
  command.footer(
      "Examples:\n"
      "  pliant plan pliant.toml --world-size 4\n"
      "  pliant plan pliant.toml --memory model.safetensors --set coordinator.budget=8589934592\n"
      "  pliant plan pliant.toml --memory trace.json\n"
      "  pliant plan pliant.toml --compare v0.1,v0.2,exact --plot efficiency.svg\n\n"
      "Every command takes --set, --plugin-dir, --color, -v and -q: see pliant --help");
  command.callback(
      [&invocation, given] { invocation.action = [&invocation, given] { return show_plan(invocation, *given); }; });
}

}  // namespace pliant::cli
