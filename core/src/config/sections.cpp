// Option tables of [run], [data], [lr], [balancer], [accelerator], [coordinator] and [plugins], by the same mechanism
// that plugins use.
#include "config/sections.hpp"

#include <atomic>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/no_fork.hpp"
#include "pliant/sdk/options.hpp"
#include "plugin/plugin.hpp"

namespace pliant::config {

namespace {

template <class T>
using Table = sdk::Options<T>;

void fill(Table<RunOptions>& o) {
  using R = RunOptions;
  o.add("workers", &R::workers, "Worker processes on this node.").range(1, 4096);
  o.add("command", &R::command,
        "Program and arguments; a program with a / in it counts from working_dir. What follows -- on the command line "
        "replaces it.");
  o.add("seed", &R::seed, "Seed for the order of rows and the initial weights.").at_least(0);
  o.add("epochs", &R::epochs, "Number of passes over the data set.").at_least(1);
  o.add("max_steps", &R::max_steps, "Stop after this many steps; 0 = after the last epoch.").at_least(0).unit("steps");
  o.add("deterministic", &R::deterministic,
        "Produce the same weights, bit by bit, at every world size; costs some speed.");
  o.add("reduce_bucket", &R::reduce_bucket,
        "Without deterministic, parts of the gradient of this many bytes are added up over the workers as soon as the "
        "program hands them in, while it computes the rest; 0 = not before all is there.")
      .at_least(0)
      .unit("bytes");
  o.add("on_loss", &R::on_loss,
        "What to do when a worker dies: replace it, continue with fewer workers, or end the job.")
      .choices({"replace", "shrink", "stop"});
  o.add("on_nonfinite", &R::on_nonfinite,
        "What to do when a gradient or a loss is NaN or infinite: end the job before the step is committed, skip the "
        "update of that step, or do not check.")
      .choices({"stop", "skip", "ignore"});
  o.add("digest_every", &R::digest_every,
        "Compare the states of the ranks, by digest, every this many steps; states saved in a snapshot are compared as "
        "well. 0 = never.")
      .at_least(0)
      .unit("steps");
  o.add("max_restarts", &R::max_restarts,
        "Most restarts in one job: of single workers, or of the whole group if the program does not use the embedding "
        "API.")
      .at_least(0);
  o.add("attach", &R::attach,
        "Whether the program uses the embedding API: required, never, or auto = detected from what it does.")
      .choices({"auto", "required", "never"});
  o.add("start_timeout_s", &R::start_timeout_s,
        "Kill a worker that uses the embedding API, or must (attach), if it is not ready after this long.")
      .range(0.1, 1e6)
      .unit("s");
  o.add("hang_timeout_s", &R::hang_timeout_s,
        "Kill ranks that block the group for this long, and processes that are stopped for this long.")
      .range(0.1, 1e6)
      .unit("s");
  o.add("stop_grace_s", &R::stop_grace_s,
        "Time between SIGTERM and SIGKILL when a program without the embedding API is ended.")
      .range(0.0, 1e6)
      .unit("s");
  o.add("working_dir", &R::working_dir,
        "Working directory of the workers; relative to the config file; empty = where pliant run was called.");
  o.add("snapshot_every", &R::snapshot_every,
        "Write a snapshot every this many steps; 0 = only at Ctrl-C and at the end.")
      .at_least(0)
      .unit("steps");
  o.add("keep_snapshots", &R::keep_snapshots, "Number of snapshots to keep; older ones are removed.").at_least(1);
  o.add("keep_best", &R::keep_best,
        "Keep the snapshot whose state has the best value of this metric as well: of an evaluation of that state, or a "
        "metric or the loss of the step before it; empty = none.");
  o.add("best_is", &R::best_is, "Which value of keep_best is the best.").choices({"least", "most"});
  o.add("log_dir", &R::log_dir, "Directory for ledger, logs and snapshots of runs; relative to the working directory.");
  o.add("name", &R::name,
        "Name of the job; empty = the name of the config file, or of its folder if the file is pliant.toml.");
}

void fill(Table<DataOptions>& o) {
  o.add("text", &DataOptions::text, "A UTF-8 text file to train on; relative to the config file.");
  o.add("lengths", &DataOptions::lengths,
        "Length of each sequence in tokens: a .npy, .i32, .i64, .jsonl or .txt file, DeepSpeed's metric files (.idx, "
        ".bin or the folder), or the .idx of a Megatron data set; relative to the config file.");
  o.add("length_column", &DataOptions::length_column,
        "The key in a .jsonl line that holds the length, or the list of tokens.");
  o.add("loss_tokens", &DataOptions::loss_tokens,
        "Number of tokens of each sequence that have a loss; a file as for lengths. Empty = all tokens.");
  o.add("loss_tokens_column", &DataOptions::loss_tokens_column,
        "The key in a .jsonl line that holds the number of tokens with a loss.");
}

void fill(Table<LrOptions>& o) {
  o.add("base_lr", &LrOptions::base_lr, "The learning rate for base_batch.").range(0.0, 1e6);
  o.add("base_batch", &LrOptions::base_batch,
        "The batch size that base_lr is tuned for, in unit; 0 = the mean batch of the first epoch.")
      .range(0.0, 1e18);
  o.add("unit", &LrOptions::unit, "Unit in which the rule measures a batch.")
      .choices({"rows", "packs", "sequences", "tokens", "loss_tokens"});
  o.add("schedule", &LrOptions::schedule,
        "Schedules: rules that change base_lr over time, applied in this order before use.");
  o.add("then", &LrOptions::then, "Links: rules that refine the result of use, applied in this order.");
  o.add("optimizer", &LrOptions::optimizer, "Family of the optimizer; rules that are not valid for it are refused.")
      .choices({"unknown", "sgd", "sgd_momentum", "nesterov", "adam", "adamw", "lamb", "lars", "sign", "other"});
  o.add("beta1", &LrOptions::beta1, "The first beta for base_batch; with SGD its momentum.").range(0.0, 1.0);
  o.add("beta2", &LrOptions::beta2, "The second beta for base_batch.").range(0.0, 1.0);
  o.add("epsilon", &LrOptions::epsilon, "The epsilon for base_batch.").range(0.0, 1e6);
  o.add("weight_decay", &LrOptions::weight_decay, "The weight decay for base_batch.").range(0.0, 1e6);
  o.add("ema", &LrOptions::ema, "The decay of the weight average (EMA) for base_batch.").range(0.0, 1.0);
}

void fill(Table<BalancerOptions>& o) {
  using B = BalancerOptions;
  constexpr int64_t kMost = int64_t{1} << 40;
  o.add("cost_per_token", &B::cost_per_token, "Cost of one token; only the ratio to cost_per_square matters.")
      .range(int64_t{0}, kMost);
  o.add("cost_per_square", &B::cost_per_square,
        "Cost of one pair of tokens of a sequence: a sequence of l tokens costs cost_per_token * l + cost_per_square * "
        "l * l.")
      .range(int64_t{0}, kMost);
  o.add("fit", &B::fit,
        "Fit both costs to the measured times of the ranks; the given values are used until enough are measured.");
  o.add("costs", &B::costs,
        "Cost of each sequence in place of cost_per_token and cost_per_square: a .npy file with one number, 0 or more, "
        "for each sequence; only ratios matter. Relative to the config file.");
  o.add("row_costs", &B::row_costs,
        "Cost of each row of sampler rows, in the order of its offsets: a .npy file as for costs, which it replaces.");
}

void fill(Table<AcceleratorOptions>& o) {
  o.add("device", &AcceleratorOptions::device,
        "Device number for every rank of this machine; unset = local rank modulo number of devices.")
      .range(0, 65535);
}

void fill(Table<CoordinatorOptions>& o) {
  using C = CoordinatorOptions;
  o.add("budget", &C::budget,
        "Limit in bytes, per device, for gathered parameters, complete gradients and transfers between ranks; 0 or "
        "unset = no limit. A module or gradient that needs more is refused by name.")
      .at_least(0)
      .unit("bytes");
  o.add("compute_dtype", &C::compute_dtype,
        "Type of gathered parameters: bf16 halves memory and traffic. Owners keep f32 and cast once before a gather.")
      .choices({"f32", "bf16"});
  o.add("reduce_dtype", &C::reduce_dtype,
        "Type of complete gradients and of their transfer to the owners. Owners add them up in f32.")
      .choices({"f32", "bf16"});
  o.add("poison", &C::poison,
        "Overwrite released parameters with NaN, to find programs that read them after release. Costs one write per "
        "release; correct programs get the same bits.");
}

void fill(Table<PluginsOptions>& o) {
  o.add("dirs", &PluginsOptions::dirs, "Directories to search for plugins; relative to the config file.");
}

template <class T>
const Table<T>& table() {
  static constinit std::atomic<const Table<T>*> one{nullptr};  // its rows are pointed to from everywhere
  return made_once(one, [] {
    auto made = std::make_unique<Table<T>>();
    fill(*made);
    return std::unique_ptr<const Table<T>>(std::move(made));
  });
}

}  // namespace

const std::vector<std::string>& core_sections() {
  static constinit std::atomic<const std::vector<std::string>*> sections{nullptr};
  return made_once(sections, [] {
    return std::make_unique<const std::vector<std::string>>(
        std::initializer_list<std::string>{"plugins", "balancer", "lr", "accelerator", "coordinator", "data", "run"});
  });
}

const std::vector<std::string>& all_sections() {
  static constinit std::atomic<const std::vector<std::string>*> sections{nullptr};
  return made_once(sections, [] {
    std::vector<std::string> all{"plugins"};
    for (const plugin::Kind& kind : plugin::kinds()) all.emplace_back(kind.section);
    all.insert(all.end(), {"data", "run", "app"});
    return std::make_unique<const std::vector<std::string>>(std::move(all));
  });
}

const std::vector<pliant_option>& core_options(std::string_view section) {
  static constinit std::atomic<const std::vector<pliant_option>*> none{nullptr};
  if (section == "run") return table<RunOptions>().rows();
  if (section == "data") return table<DataOptions>().rows();
  if (section == "balancer") return table<BalancerOptions>().rows();
  if (section == "lr") return table<LrOptions>().rows();
  if (section == "accelerator") return table<AcceleratorOptions>().rows();
  if (section == "coordinator") return table<CoordinatorOptions>().rows();
  if (section == "plugins") return table<PluginsOptions>().rows();
  return made_once(none, [] { return std::make_unique<const std::vector<pliant_option>>(); });
}

void apply_core_options(std::string_view section, const pliant_option_values& values, CoreOptions& to) {
  if (section == "run") table<RunOptions>().apply(values, to.run);
  if (section == "data") table<DataOptions>().apply(values, to.data);
  if (section == "balancer") table<BalancerOptions>().apply(values, to.balancer);
  if (section == "lr") table<LrOptions>().apply(values, to.lr);
  if (section == "accelerator") table<AcceleratorOptions>().apply(values, to.accelerator);
  if (section == "coordinator") table<CoordinatorOptions>().apply(values, to.coordinator);
  if (section == "plugins") table<PluginsOptions>().apply(values, to.plugins);
}

}  // namespace pliant::config
