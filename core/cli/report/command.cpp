// pliant report
#include <CLI/CLI.hpp>
#include <memory>

#include "base/whole_file.hpp"
#include "commands.hpp"
#include "output.hpp"
#include "pliant/error.hpp"
#include "report/views.hpp"
#include "values.hpp"

namespace pliant::cli {

namespace {

struct ReportArguments {
  std::string run;
  std::string figure_file;
};

int show_report(const Invocation& invocation, const ReportArguments& arguments) {
  const RunReport report = report_run(arguments.run);
  if (!arguments.figure_file.empty()) {
    const Result<> written = write_whole(arguments.figure_file, report_figure(report), true);
    if (!written) throw written.error().with_message("--plot: " + written.error().message());
  }
  return emit(invocation.json ? report_json(report) : report_text(report));
}

}  // namespace

void add_report(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "report", "Show the course of a run: loss, learning rate, world size, losses of workers and recoveries");
  const auto given = std::make_shared<ReportArguments>();
  command->add_option("RUN", given->run, "The run directory")->required();
  command
      ->add_option(
          "--plot", given->figure_file,
          "Draw loss, metrics, evaluations, learning rate and world size over the steps into this SVG file, with "
          "a mark for each change of the worker group")
      ->type_name("FILE.svg")
      ->check(figure_file())
      ->check([](const std::string& name) { return name.empty() ? "the name is empty" : std::string(); });
  add_json(*command, invocation);
  command->footer(
      "Reads the ledger and nothing else, also while the job runs. Steps that a restart went back over are discarded: "
      "they were computed again, and the figure shows them pale. `pliant audit` checks a run, `report` shows it.\n\n"
      "Examples:\n"
      "  pliant report pliant-runs/tinylm/latest\n"
      "  pliant report pliant-runs/tinylm/latest --plot run.svg\n\n"
      "Every command takes --set, --plugin-dir, --color, -v and -q: see pliant --help");
  command->callback(
      [&invocation, given] { invocation.action = [&invocation, given] { return show_report(invocation, *given); }; });
}

}  // namespace pliant::cli
