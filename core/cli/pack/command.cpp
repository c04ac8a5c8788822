// pliant pack
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/inside.hpp"
#include "base/whole_file.hpp"
#include "commands.hpp"
#include "config/state.hpp"
#include "names.hpp"
#include "output.hpp"
#include "pack/study.hpp"
#include "pack/views.hpp"
#include "pliant/error.hpp"
#include "progress.hpp"
#include "values.hpp"

namespace pliant::cli {

namespace {

struct PackArguments {
  std::string file;
  PackQuestion question;
  std::string samplers;  ///< names with commas between them
  std::string figure_file;
  std::string export_folder;
};

Config open_config(const Invocation& invocation, const PackArguments& arguments) {
  const Config read = Config::open(arguments.file, {}, invocation.overrides);
  ConfigNeeds needs{"sampler", "balancer"};
  if (read.has("elasticity")) needs.insert("elasticity");
  if (read.has("lr")) needs.insert("lr");
  return Config::parse(detail::inside(read).opening.text, needs, invocation.overrides,
                       arguments.file);  // a pipe can be read but once
}

PackCompared compare_one(const Config& config, const std::string& sampler, const Dataset& dataset,
                         const PackBatch& batch, const PackQuestion& question, ProgressLine& progress) {
  try {
    const Config other = with_plugin(config, "sampler", sampler);
    return {other.use("sampler"), study_pack(other, dataset, batch, question, progress), ""};
  } catch (const Error& error) {
    if (error.origin() == Origin::kPlugin) throw;
    return {sampler, std::nullopt, error.message()};
  }
}

std::vector<PackCompared> compare(const Config& config, const Dataset& dataset, const PackBatch& batch,
                                  const PackArguments& arguments, ProgressLine& progress) {
  std::vector<PackCompared> all;
  for (const std::string& sampler : names_in("--compare", arguments.samplers, "next_fit,best_fit,streaming")) {
    const bool twice =
        std::any_of(all.begin(), all.end(), [&](const PackCompared& one) { return one.sampler == sampler; });
    if (!twice) all.push_back(compare_one(config, sampler, dataset, batch, arguments.question, progress));
  }
  const bool none = std::none_of(all.begin(), all.end(), [](const PackCompared& one) { return one.study.has_value(); });
  if (none) {
    std::string message = "--compare: no sampler can pack this data";
    for (const PackCompared& one : all) message += fmt::format("\n  {}: {}", one.sampler, one.refusal);
    throw Error(Status::kInvalidArgument, message, Origin::kInput);
  }
  return all;
}

void write_figure(const std::string& file, const std::string& figure) {
  const Result<> written = write_whole(file, figure, true);
  if (written) return;
  throw written.error().with_message("--plot: " + written.error().message());
}

int show_pack(const Invocation& invocation, const PackArguments& arguments) {
  const Config config = open_config(invocation, arguments);
  if (!arguments.export_folder.empty()) check_export_folder(arguments.export_folder);
  ProgressLine progress(invocation);
  progress.show("reading " + config.data().lengths, -1);
  const Dataset dataset = load_dataset(config);
  const PackBatch batch = batch_for(config, arguments.question);
  if (!arguments.samplers.empty()) {
    const std::vector<PackCompared> all = compare(config, dataset, batch, arguments, progress);
    progress.clear();
    if (!arguments.figure_file.empty()) write_figure(arguments.figure_file, pack_compare_figure(all));
    return emit(invocation.json ? pack_compare_json(all) : pack_compare_text(all));
  }
  std::optional<Batches> batches;
  const PackStudy study = study_pack(config, dataset, batch, arguments.question, progress, &batches);
  if (!arguments.figure_file.empty()) write_figure(arguments.figure_file, pack_figure(study));
  if (!arguments.export_folder.empty()) export_pack(arguments.export_folder, study, *batches, progress);
  progress.clear();
  return emit(invocation.json ? pack_json(study) : pack_text(study));
}

}  // namespace

void add_pack(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("pack", "Pack the data set into rows and show how well they are filled");
  const auto given = std::make_shared<PackArguments>();
  const auto named = [](const std::string& name) { return name.empty() ? "the name is empty" : std::string(); };
  command
      .add_option("CONFIG", given->file, "The config file, often pliant.toml; [data] lengths and [sampler] are used")
      ->required();
  command
      .add_option("--epoch", given->question.epoch,
                  "The epoch to pack; a random order differs from epoch to epoch. Default: 0")
      ->check(within(int64_t{0}, int64_t{1} << 40))
      ->type_name("N");
  command
      .add_option("--global-batch", given->question.global_batch,
                  "Number of packs per batch, for a config without [elasticity]. Default: 1")
      ->check(within(int64_t{1}, int64_t{1} << 40))
      ->type_name("N");
  command
      .add_option(
          "--world-size", given->question.world_sizes,
          "Predict for these world sizes how long ranks wait for each other. Default: some valid sizes of the plan")
      ->check(within(int64_t{1}, int64_t{1} << 20))
      ->delimiter(',')
      ->type_name("N,...");
  CLI::Option* compared =
      command
          .add_option("--compare", given->samplers,
                      "Pack by several samplers with the same options, e.g. next_fit,best_fit,streaming, in one table")
          ->check(offers_plugins("sampler"))
          ->type_name("SAMPLER,...");
  command
      .add_option(
          "--plot", given->figure_file,
          "Plot lengths, fill of the packs and the learning rate of each step into this SVG file; with --compare, "
          "one line for each sampler")
      ->type_name("FILE.svg")
      ->check(figure_file())
      ->check(named);
  command
      .add_option(
          "--export", given->export_folder,
          "Write the packs into this new folder as flat arrays: row_offsets.npy, ids.npy, dropped.npy, pack.json")
      ->type_name("DIR")
      ->check(named)
      ->excludes(compared);
  add_json(command, invocation);
  command.footer(
      "Examples:\n"
      "  pliant pack pliant.toml --set data.lengths=lengths.npy\n"
      "  pliant pack pliant.toml --compare next_fit,best_fit,streaming --plot samplers.svg\n"
      "  pliant pack pliant.toml --plot packs.svg --export packs\n\n"
      "Every command takes --set, --plugin-dir, --color, -v and -q: see pliant --help");
  command.callback(
      [&invocation, given] { invocation.action = [&invocation, given] { return show_pack(invocation, *given); }; });
}

}  // namespace pliant::cli
