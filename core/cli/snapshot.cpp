// pliant snapshot
#include "pliant/snapshot.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "output.hpp"
#include "units.hpp"
#include "values.hpp"

namespace pliant::cli {

namespace {

struct SnapshotArguments {
  std::string from;
  std::string output;
  SnapshotChoice which;
  bool force = false;
};

std::string export_table(const SnapshotExport& made, const SnapshotArguments& arguments) {
  std::vector<std::vector<std::string>> rows{{"snapshot", made.snapshot.string()},
                                             {"state", fmt::format("after {}", counted(made.step, "step"))}};
  if (made.best) rows.push_back({"best by", fmt::format("{} {:.6g}", made.best->metric, made.best->value)});
  rows.push_back({"written", fmt::format("{}: {}, {}", arguments.output, counted(made.tensors, "tensor"),
                                         text_of_bytes(static_cast<double>(made.bytes)))});
  return table(rows);
}

std::string export_json(const SnapshotExport& made, const SnapshotArguments& arguments) {
  nlohmann::ordered_json json;
  json["schema"] = "pliant.snapshot_export/1";
  json["snapshot"] = made.snapshot.string();
  json["run_id"] = made.run_id;
  json["step"] = made.step;
  json["best"] = nullptr;
  if (made.best) json["best"] = {{"metric", made.best->metric}, {"value", made.best->value}};
  json["output"] = arguments.output;
  json["tensors"] = made.tensors;
  json["bytes"] = made.bytes;
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int export_to_file(const Invocation& invocation, const SnapshotArguments& arguments) {
  const SnapshotExport made = export_snapshot(arguments.from, arguments.which, arguments.output, arguments.force);
  return emit(invocation.json ? export_json(made, arguments) : export_table(made, arguments));
}

void add_export(CLI::App& snapshot, Invocation& invocation) {
  CLI::App& command =
      *snapshot.add_subcommand("export", "Write the arrays of a snapshot, whole and by name, to a .safetensors file");
  const auto given = std::make_shared<SnapshotArguments>();
  command.add_option("RUN", given->from, "The run directory, or a snapshot file")->required();
  command.add_option("-o,--output", given->output, "The file to write")
      ->type_name("FILE.safetensors")
      ->check([](const std::string& name) { return name.empty() ? "the name is empty" : std::string(); })
      ->required();
  CLI::Option* const best =
      command.add_flag("--best", given->which.best,
                       "Take the snapshot with the best value of [run] keep_best instead of the newest one");
  command
      .add_option("--step", given->which.step, "Take the snapshot that holds this many steps instead of the newest one")
      ->type_name("N")
      ->check(within<int64_t>(0, std::numeric_limits<int64_t>::max()))
      ->excludes(best);
  command.add_flag("--force", given->force, "Overwrite the file of --output");
  add_json(command, invocation);
  command.footer(
      "Of a sharded job the file has the parameters, under their names and as f32; of another job all arrays that its "
      "program names. The state is checked before anything is written. Changes nothing in the run, also while the job "
      "runs.\n\n"
      "Examples:\n"
      "  pliant snapshot export pliant-runs/tinylm/latest -o model.safetensors\n"
      "  pliant snapshot export pliant-runs/tinylm/latest --best -o best.safetensors\n\n"
      "Every command takes --set, --plugin-dir, --color, -v and -q: see pliant --help");
  command.callback([&invocation, given] {
    invocation.action = [&invocation, given] { return export_to_file(invocation, *given); };
  });
}

}  // namespace

void add_snapshot(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("snapshot", "Take the model out of a run's snapshots");
  command.require_subcommand(1);
  command.footer(
      "Example:\n  pliant snapshot export pliant-runs/tinylm/latest --best -o best.safetensors\n\n"
      "Every command takes --set, --plugin-dir, --color, -v and -q: see pliant --help");
  add_export(command, invocation);
}

}  // namespace pliant::cli
